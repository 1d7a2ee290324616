//! Values of TOML: each is read as its type, or refused with what would be right.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::str::FromStr;
use std::time::Duration;

use lastbyte_units::{BitRate, ByteSize, Span};
use toml::Spanned;
use toml::de::DeValue;

use super::super::parse;
use super::super::{Choice, User};

/// A value that is wrong.
#[derive(Debug)]
pub(super) struct Wrong {
    /// The position, where that is not the start of the value.
    pub(super) at: Option<usize>,
    pub(super) sentence: String,
}

impl Wrong {
    pub(super) fn new(sentence: impl Into<String>) -> Self {
        Self { at: None, sentence: sentence.into() }
    }
}

type Value<'r> = Spanned<DeValue<'r>>;

pub(super) fn text<'r>(value: &'r Value<'r>) -> Result<&'r str, Wrong> {
    match value.get_ref() {
        DeValue::String(text) if !text.is_empty() => Ok(text),
        DeValue::String(_) => Err(Wrong::new("it is empty")),
        other => Err(Wrong::new(format!("{}: write it in quotation marks", found(other)))),
    }
}

pub(super) fn parsed<'r, T>(value: &'r Value<'r>) -> Result<T, Wrong>
where
    T: FromStr<Err: ToString>,
{
    text(value)?.parse().map_err(|error: T::Err| Wrong::new(error.to_string()))
}

/// One value, or a list of at least one.
pub(super) fn list<'r, T>(
    value: &'r Value<'r>,
    read: impl Fn(&'r Value<'r>) -> Result<T, Wrong>,
) -> Result<Vec<T>, Wrong> {
    let DeValue::Array(list) = value.get_ref() else { return Ok(vec![read(value)?]) };
    if list.is_empty() {
        return Err(Wrong::new("the list is empty: leave the key out, or add an entry"));
    }
    let read_one = |one: &'r Value<'r>| {
        read(one)
            .map_err(|wrong| Wrong { at: wrong.at.or_else(|| Some(one.span().start)), ..wrong })
    };
    list.iter().map(read_one).collect()
}

pub(super) fn flag(value: &Value<'_>) -> Result<bool, Wrong> {
    let other = || Wrong::new(format!("{}: write true or false", found(value.get_ref())));
    value.get_ref().as_bool().ok_or_else(other)
}

pub(super) fn at_least_one(value: &Value<'_>) -> Result<NonZeroUsize, Wrong> {
    let number = whole(value, 1..=u64::from(u32::MAX))?;
    let number = usize::try_from(number).ok().and_then(NonZeroUsize::new);
    number.ok_or_else(|| Wrong::new("it is too large"))
}

pub(super) fn probes(value: &Value<'_>) -> Result<u32, Wrong> {
    whole(value, 1..=127).map(|number| u32::try_from(number).unwrap_or(u32::MAX))
}

pub(super) fn mark(value: &Value<'_>) -> Result<u32, Wrong> {
    whole(value, 0..=u64::from(u32::MAX)).map(|number| u32::try_from(number).unwrap_or(u32::MAX))
}

fn whole(value: &Value<'_>, range: std::ops::RangeInclusive<u64>) -> Result<u64, Wrong> {
    let (least, most) = (range.start(), range.end());
    let number = value.get_ref().as_integer();
    let number = number.and_then(|one| u64::from_str_radix(one.as_str(), one.radix()).ok());
    number.filter(|number| range.contains(number)).ok_or_else(|| {
        let found = found(value.get_ref());
        Wrong::new(format!("{found}: write a whole number from {least} to {most}"))
    })
}

/// A time that is not zero.
pub(super) fn time(value: &Value<'_>) -> Result<Duration, Wrong> {
    let span: Span = parsed(value)?;
    if span == Span::ZERO {
        return Err(Wrong::new("0 is no time limit: leave the key out for no limit"));
    }
    Ok(span.as_duration())
}

/// A time of keep-alive: `tcp(7)` has it from 1 to 32,767 s.
pub(super) fn probing(value: &Value<'_>) -> Result<Duration, Wrong> {
    let time = time(value)?;
    if time.as_secs_f64() > 32_767.0 {
        return Err(Wrong::new("the kernel takes 32767s at most"));
    }
    Ok(time)
}

/// A number of bytes that a socket's option can have.
pub(super) fn buffer(value: &Value<'_>) -> Result<u32, Wrong> {
    let size: ByteSize = parsed(value)?;
    let fits = u32::try_from(size.bytes()).ok().filter(|bytes| *bytes <= LARGEST);
    let bytes = fits.ok_or_else(|| Wrong::new(format!("{size} is too large: 1 GiB at most")))?;
    if bytes == 0 { Err(Wrong::new("0 is no size: leave the key out")) } else { Ok(bytes) }
}

/// The kernel doubles a buffer's size, and counts it in an `int`.
const LARGEST: u32 = 1 << 30;

pub(super) fn bytes_per_s(value: &Value<'_>) -> Result<u64, Wrong> {
    let rate: BitRate = parsed(value)?;
    match rate.bits_per_s() / 8 {
        0 => Err(Wrong::new(format!("{rate} is less than a byte per second"))),
        bytes => Ok(bytes),
    }
}

pub(super) fn listen(value: &Value<'_>) -> Result<SocketAddr, Wrong> {
    parse::listen(text(value)?).map_err(|error| Wrong::new(error.to_string()))
}

pub(super) fn address(value: &Value<'_>) -> Result<IpAddr, Wrong> {
    let text = text(value)?;
    text.parse()
        .map_err(|_| Wrong::new(format!("{text:?} is no address: write one such as 192.0.2.1")))
}

pub(super) fn choice(value: &Value<'_>) -> Result<Choice, Wrong> {
    match text(value)? {
        "round-robin" => Ok(Choice::RoundRobin),
        "first-healthy" => Ok(Choice::FirstHealthy),
        other => {
            Err(Wrong::new(format!("{other:?} is no choice: write round-robin or first-healthy")))
        }
    }
}

/// A route's name: it is part of lines and labels, where spaces and quotation marks have a meaning.
pub(super) fn name(value: &Value<'_>) -> Result<String, Wrong> {
    let text = text(value)?;
    let fits = |one: char| one.is_ascii_alphanumeric() || "._-:[]%".contains(one);
    if text.len() <= 64 && text.chars().all(fits) {
        return Ok(text.to_owned());
    }
    Err(Wrong::new(format!(
        "{text:?} is no name: write at most 64 letters, digits and . _ - : [ ]"
    )))
}

/// An interface's name: at most 15 bytes (`IFNAMSIZ`).
pub(super) fn interface<'r>(value: &'r Value<'r>) -> Result<&'r str, Wrong> {
    let text = text(value)?;
    let fits = text.len() <= 15 && !text.contains(|one: char| one == '/' || one.is_whitespace());
    fits.then_some(text).ok_or_else(|| Wrong::new(format!("{text:?} is no interface's name")))
}

/// A table of names and passwords.
pub(super) fn users(value: &Value<'_>) -> Result<Vec<User>, Wrong> {
    let DeValue::Table(table) = value.get_ref() else {
        return Err(Wrong::new("this is a table: write { alice = \"secret\" }"));
    };
    if table.is_empty() {
        return Err(Wrong::new("it has no user: leave the key out, or add one"));
    }
    let one = |(name, password): (&Spanned<_>, &Value<'_>)| {
        let at = Some(name.span().start);
        let password = text(password).map_err(|wrong| Wrong { at, ..wrong })?;
        let name: &std::borrow::Cow<'_, str> = name.get_ref();
        user(name, password).map_err(|sentence| Wrong { at, sentence })
    };
    table.iter().map(one).collect()
}

/// RFC 1929 has names and passwords of 1 to 255 bytes; in HTTP a name has no colon (RFC 7617).
pub(super) fn user(name: &str, password: &str) -> Result<User, String> {
    let fits = |text: &str| (1..=255).contains(&text.len());
    if !fits(name) || name.contains(':') || name.contains(char::is_control) {
        return Err("a name has 1 to 255 bytes, without colons or control characters".to_owned());
    }
    if !fits(password) {
        return Err(format!("the password of {name:?} has to have 1 to 255 bytes"));
    }
    Ok(User { name: name.to_owned(), password: password.to_owned() })
}

fn found(value: &DeValue<'_>) -> String {
    match value {
        DeValue::Integer(number) => format!("{} is a number", number.as_str()),
        DeValue::Float(number) => format!("{} is a number", number.as_str()),
        DeValue::String(text) => format!("{text:?} is text"),
        DeValue::Boolean(flag) => format!("{flag} is no text"),
        DeValue::Datetime(_) => "this is a date".to_owned(),
        DeValue::Array(_) => "this is a list".to_owned(),
        DeValue::Table(_) => "this is a table".to_owned(),
    }
}
