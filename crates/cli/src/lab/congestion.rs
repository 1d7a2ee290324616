//! Which congestion controls are compared.

use anyhow::{Result, bail};
use lastbyte_congestion::borrow::{ALL, Borrowed, borrow, split, there};
use lastbyte_congestion::{allowed, available};
use lastbyte_lab::Path;
use lastbyte_link::Way;

use super::host::Far;
use super::words::MatrixArgs;
use crate::output::talk;

/// Loads what is asked for and missing, where this machine sends.
pub(super) fn bring(matrix: &MatrixArgs, far: Option<&Far>) -> Result<Borrowed> {
    if far.is_some() && !sends(matrix, Way::Up) {
        return Ok(Borrowed::default());
    }
    Ok(borrow(&matrix.congestion, &mut |line| talk(&format!("lab: {line}")))?)
}

/// The congestion controls asked for, or all that may be used.
pub(super) fn chosen(matrix: &MatrixArgs, path: &Path, far: Option<&Far>) -> Result<Vec<String>> {
    let asked = &matrix.congestion;
    // Who sends must have it.
    let (up, down) = (sends(matrix, Way::Up), sends(matrix, Way::Down));
    let mut available = match far {
        Some(far) if !up => far.remote.about().congestion.clone(),
        _ => available().unwrap_or_default(),
    };
    let far_alone = far.is_some() && !up;
    if let Some(far) = far.filter(|_| up && down) {
        available.retain(|name| far.remote.about().congestion.contains(name));
    }
    let mut names: Vec<String> = Vec::new();
    for word in asked.iter().filter(|word| *word != ALL) {
        let (name, _) = split(word)?;
        let who = if far.is_some() { "who sends" } else { "this kernel" };
        let Some(name) = there(name, &available) else {
            bail!(
                "congestion control `{name}` is not known: {who} offers {}{}",
                available.join(", "),
                if far_alone { "; `lastbyte cc load` there loads others" } else { "" }
            );
        };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    if !names.is_empty() && asked.iter().all(|word| word != ALL) {
        return Ok(names);
    }
    let root = lastbyte_sys::process::effective_user() == 0;
    if root || far_alone || path.scenario().is_some() {
        return Ok(available);
    }
    let mut allowed = allowed().unwrap_or_default();
    allowed.retain(|name| available.contains(name));
    let left_out: Vec<_> = available.iter().filter(|name| !allowed.contains(name)).collect();
    if !left_out.is_empty() {
        let names: Vec<&str> = left_out.iter().map(|name| name.as_str()).collect();
        talk(&format!("lab: left out, because only root may use it here: {}", names.join(", ")));
    }
    Ok(allowed)
}

fn sends(matrix: &MatrixArgs, way: Way) -> bool {
    matrix.direction.iter().any(|direction| direction.ways().contains(&way))
}
