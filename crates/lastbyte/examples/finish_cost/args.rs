//! The command line's arguments: `key=value`.

use std::collections::BTreeMap;
use std::error::Error;
use std::str::FromStr;

pub(crate) struct Args(BTreeMap<String, String>);

impl Args {
    pub(crate) fn of(arguments: impl Iterator<Item = String>) -> Result<Self, Box<dyn Error>> {
        let mut args = BTreeMap::new();
        for word in arguments {
            let (key, value) = word.split_once('=').ok_or_else(|| format!("`{word}` has no ="))?;
            args.insert(key.to_owned(), value.to_owned());
        }
        Ok(Self(args))
    }

    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    pub(crate) fn number<T: FromStr>(&self, key: &str, otherwise: T) -> Result<T, Box<dyn Error>> {
        match self.text(key) {
            None => Ok(otherwise),
            Some(text) => text.parse().map_err(|_| format!("{key}={text} is no number").into()),
        }
    }
}
