//! Lines of a plot as short texts: whole numbers on a plane, no more points than can be seen.

use std::fmt::Write as _;

/// How wide a plane is. A plot is drawn about 700 pixels wide: one step is a tenth of a pixel.
pub(super) const WIDTH: f64 = 7000.0;
/// How high a plane is: about 90 pixels.
pub(super) const HEIGHT: f64 = 900.0;
/// How far a line may be from the points that it leaves out: a third of a pixel.
const TOLERANCE: f64 = 3.0;

/// What the width and the height of a plane stand for; both begin at zero.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plane {
    /// What the right border stands for.
    pub(super) right: f64,
    /// What the upper border stands for; what is higher is drawn there.
    pub(super) top: f64,
}

impl Plane {
    /// A line through points, as the data of an SVG path; with at most about `most` points, of which
    /// the highest and the lowest of every column are kept. Empty if there is nothing to draw.
    pub(super) fn line(&self, points: impl Iterator<Item = (f64, f64)>, most: usize) -> String {
        let placed: Vec<Point> = points.filter_map(|point| self.place(point)).collect();
        let (Some(first), Some(last)) = (placed.first(), placed.last()) else {
            return String::new();
        };
        if placed.len() == 1 {
            // A line without length, which a round cap shows.
            return format!("M{} {}h0", first.0, first.1);
        }
        debug_assert!(first.0 <= last.0, "time goes on");
        path(&without_needless(&thinned(placed, most)))
    }

    fn place(&self, (x, y): (f64, f64)) -> Option<Point> {
        let on = |value: f64, whole: f64, length: f64| {
            let share = value / whole;
            #[expect(clippy::cast_possible_truncation, reason = "between 0 and `length`")]
            share.is_finite().then(|| (share.clamp(0.0, 1.0) * length).round() as i32)
        };
        #[expect(clippy::cast_possible_truncation, reason = "a small constant")]
        let height = HEIGHT as i32;
        Some((on(x, self.right, WIDTH)?, height - on(y, self.top, HEIGHT)?))
    }

    /// A line from the lower border to the upper one, as the data of an SVG path.
    pub(super) fn upright(&self, x: f64) -> Option<String> {
        let (x, bottom) = self.place((x, 0.0))?;
        Some(format!("M{x} {bottom}v-{HEIGHT}"))
    }

    /// Where this part of the width begins, and how long it is.
    pub(super) fn span(&self, from: f64, to: f64) -> Option<(i32, i32)> {
        let (from, to) = (self.place((from, 0.0))?.0, self.place((to, 0.0))?.0);
        Some((from, to - from))
    }
}

/// To the right and down.
type Point = (i32, i32);

/// Keeps the first, the lowest, the highest and the last point of each of some columns.
fn thinned(points: Vec<Point>, most: usize) -> Vec<Point> {
    if points.len() <= most.max(4) {
        return points;
    }
    let columns = i32::try_from(most / 4).unwrap_or(i32::MAX).max(1);
    #[expect(clippy::cast_possible_truncation, reason = "a small constant")]
    let column = |point: &Point| i64::from(point.0) * i64::from(columns) / (WIDTH as i64 + 1);
    let mut kept = Vec::new();
    for chunk in points.chunk_by(|a, b| column(a) == column(b)) {
        let place = |found: Option<(usize, &Point)>| found.map_or(0, |(place, _)| place);
        let points = || chunk.iter().enumerate();
        let mut places = [
            0,
            place(points().min_by_key(|(_, point)| point.1)),
            place(points().max_by_key(|(_, point)| point.1)),
            chunk.len() - 1,
        ];
        places.sort_unstable();
        let mut before = None;
        for place in places {
            if before != Some(place) {
                kept.push(chunk[place]);
            }
            before = Some(place);
        }
    }
    kept
}

/// Leaves out the points that lie on the line between others (Douglas and Peucker, "Algorithms for
/// the reduction of the number of points required to represent a digitized line or its caricature",
/// Cartographica 10 (1973), 112-122). Only for few points: it may take their number squared.
fn without_needless(points: &[Point]) -> Vec<Point> {
    let Some(last) = points.len().checked_sub(1) else { return Vec::new() };
    let mut keep = vec![false; points.len()];
    (keep[0], keep[last]) = (true, true);
    let mut spans = vec![(0, last)];
    while let Some((from, to)) = spans.pop() {
        let between = from + 1..to.max(from + 1);
        let distances =
            between.map(|place| (place, distance(points[place], points[from], points[to])));
        let farthest = distances.max_by(|a, b| a.1.total_cmp(&b.1));
        if let Some((place, distance)) = farthest
            && distance > TOLERANCE
        {
            keep[place] = true;
            spans.extend([(from, place), (place, to)]);
        }
    }
    points.iter().zip(keep).filter(|(_, keep)| *keep).map(|(point, _)| *point).collect()
}

/// How far a point is from the line between two others.
fn distance(point: Point, from: Point, to: Point) -> f64 {
    let vector = |a: Point, b: Point| (f64::from(b.0 - a.0), f64::from(b.1 - a.1));
    let ((x, y), (line_x, line_y)) = (vector(from, point), vector(from, to));
    let length = line_x.hypot(line_y);
    if length == 0.0 { x.hypot(y) } else { (x * line_y - y * line_x).abs() / length }
}

/// Each point by its distance from the one before: those numbers are short.
fn path(points: &[Point]) -> String {
    let Some(first) = points.first() else { return String::new() };
    let mut path = format!("M{} {}l", first.0, first.1);
    for (a, b) in points.iter().zip(&points[1..]) {
        // A string takes any text. A minus separates as well as a space.
        for number in [b.0 - a.0, b.1 - a.1] {
            if number >= 0 && !path.ends_with('l') {
                path.push(' ');
            }
            let _ = write!(path, "{number}");
        }
    }
    path
}

/// Where an axis has its marks: from zero, two to six of them, at 1, 2 or 5 of a power of ten.
pub(super) fn ticks(greatest: f64) -> Vec<f64> {
    if !(greatest.is_finite() && greatest > f64::MIN_POSITIVE * 1e6) {
        return vec![0.0];
    }
    let power = 10_f64.powf((greatest / 4.0).log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|step| step * power)
        .find(|step| greatest / step <= 5.0)
        .unwrap_or(greatest);
    (0..6).map(|place| f64::from(place) * step).take_while(|tick| *tick <= greatest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLANE: Plane = Plane { right: 7.0, top: 9.0 };

    #[test]
    fn a_straight_line_has_two_points() {
        let points = (0..=70).map(|tenth| f64::from(tenth) / 10.0).map(|x| (x, x));
        assert_eq!(PLANE.line(points, 1000), "M0 900l7000-700");
    }

    #[test]
    fn a_peak_stays_however_few_points_are_allowed() {
        let points = (0..10_000).map(|x| (f64::from(x) / 1430.0, if x == 777 { 9.0 } else { 0.0 }));
        let line = PLANE.line(points, 40);
        assert!(line.contains("-900"), "{line}");
        assert!(line.len() < 400, "{line}");
    }

    #[test]
    fn any_noise_is_bounded() {
        let noise = |x: u32| f64::from(x.wrapping_mul(2_654_435_761) >> 16) / 65_536.0 * 9.0;
        let points = (0..100_000).map(|x| (f64::from(x) / 14_300.0, noise(x)));
        let line = PLANE.line(points, 400);
        assert!(line.len() < 400 * 10, "{}", line.len());
    }

    #[test]
    fn odd_points_are_left_out_or_at_the_border() {
        let odd = [(0.0, f64::NAN), (f64::INFINITY, 1.0), (1.0, 1e300), (2.0, -5.0)];
        assert_eq!(PLANE.line(odd.into_iter(), 100), "M1000 0l1000 900");
        assert_eq!(PLANE.line([].into_iter(), 100), "");
        assert_eq!(PLANE.line([(7.0, 0.0)].into_iter(), 100), "M7000 900h0");
        assert_eq!(Plane { right: 0.0, top: 0.0 }.line([(0.0, 0.0)].into_iter(), 9), "");
    }

    #[test]
    fn ticks_are_round_and_few() {
        assert_eq!(ticks(91.7), [0.0, 20.0, 40.0, 60.0, 80.0]);
        assert_eq!(ticks(8.0), [0.0, 2.0, 4.0, 6.0, 8.0]);
        assert_eq!(ticks(0.0), [0.0]);
        for greatest in [1e-300, 0.3, 1.0, 7.7, 1234.5, 1e30, 1e300, f64::MAX] {
            let ticks = ticks(greatest);
            assert!((2..=6).contains(&ticks.len()), "{greatest}: {ticks:?}");
        }
    }
}
