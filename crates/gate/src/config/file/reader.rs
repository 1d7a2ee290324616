//! Tables of TOML. Each key is read once, and its position is noted; a key that is never read is a fault,
//! and so is a value that cannot be read. All faults are reported, not only the first.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::super::keys::{self, Table};
use super::super::{Place, Refused, Remark, Subject};
use super::Places;
use super::values::Wrong;

/// Parses a document.
pub(super) fn parse<'t>(name: &str, text: &'t str) -> Result<Spanned<DeTable<'t>>, Refused> {
    let (document, errors) = DeTable::parse_recoverable(text);
    if errors.is_empty() {
        return Ok(document);
    }
    let reader = Reader::new(name, text);
    for error in errors {
        let at = error.span().map_or(0, |span| span.start);
        reader.fault(Subject::Gate, "", at, error.message());
    }
    Err(Refused(reader.faults.into_inner()))
}

/// A file that is being read.
pub(super) struct Reader<'t> {
    name: Arc<str>,
    text: &'t str,
    faults: RefCell<Vec<Remark>>,
    places: RefCell<Places>,
}

impl<'t> Reader<'t> {
    pub(super) fn new(name: &str, text: &'t str) -> Self {
        Self { name: Arc::from(name), text, faults: RefCell::default(), places: RefCell::default() }
    }

    /// The positions of all keys, or all faults.
    pub(super) fn done(self) -> Result<Places, Refused> {
        let mut faults = self.faults.into_inner();
        if faults.is_empty() {
            return Ok(self.places.into_inner());
        }
        faults.sort_by_key(|fault| fault.place.as_ref().map(|place| (place.line, place.column)));
        Err(Refused(faults))
    }

    fn place(&self, at: usize) -> Place {
        let before = self.text.get(..at).unwrap_or(self.text);
        let line = before.rsplit('\n').next().unwrap_or_default();
        Place {
            file: Arc::clone(&self.name),
            line: before.matches('\n').count() + 1,
            column: line.chars().count() + 1,
        }
    }

    fn fault(&self, of: Subject, key: &str, at: usize, sentence: &str) {
        let place = Some(self.place(at));
        self.faults.borrow_mut().push(Remark { place, ..Remark::new(of, key, sentence) });
    }
}

/// A table of a file.
pub(super) struct Section<'r> {
    reader: &'r Reader<'r>,
    table: &'r DeTable<'r>,
    /// The keys it may have.
    which: &'static [Table],
    /// The index of the route that it is or belongs to.
    route: Option<usize>,
    /// The name of that route, once it is known.
    name: Cell<Option<Arc<str>>>,
    /// The prefix of its keys: `upstream.`.
    prefix: String,
    /// Its position.
    at: usize,
}

impl<'r> Section<'r> {
    pub(super) fn top(reader: &'r Reader<'r>, table: &'r DeTable<'r>) -> Self {
        let (prefix, name) = (String::new(), Cell::default());
        Self { reader, table, which: &[Table::Gate], route: None, name, prefix, at: 0 }
    }

    /// Later faults are reported with this name.
    pub(super) fn name(&self, name: Option<String>) {
        self.name.set(name.map(Arc::from));
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    pub(super) fn is_table(&self, key: &str) -> bool {
        self.table.get(key).is_some_and(|value| value.get_ref().is_table())
    }

    /// The value of a key; `None` where it is missing, or is wrong.
    pub(super) fn take<T>(
        &self,
        key: &'static str,
        read: impl FnOnce(&'r Spanned<DeValue<'r>>) -> Result<T, Wrong>,
    ) -> Option<T> {
        let (written, value) = self.table.get_key_value(key)?;
        self.note(key, written.span().start);
        read(value).map_err(|wrong| self.wrong(key, value, &wrong)).ok()
    }

    /// As [`Section::take`]; a missing key is a fault.
    pub(super) fn must<T>(
        &self,
        key: &'static str,
        read: impl FnOnce(&'r Spanned<DeValue<'r>>) -> Result<T, Wrong>,
        example: &str,
    ) -> Option<T> {
        if !self.has(key) {
            self.fault(&format!("`{key}` is missing: write {example}"));
        }
        self.take(key, read)
    }

    /// A table inside of this one.
    pub(super) fn table(&self, key: &'static str, which: &'static [Table]) -> Option<Self> {
        let (written, value) = self.table.get_key_value(key)?;
        self.note(key, written.span().start);
        let DeValue::Table(table) = value.get_ref() else {
            let section =
                if self.route.is_some() { format!("route.{key}") } else { key.to_owned() };
            let sentence = format!("this is a table: write [{section}], and its keys below");
            self.wrong(key, value, &Wrong::new(sentence));
            return None;
        };
        let prefix =
            if self.route.is_some() { format!("{}{key}.", self.prefix) } else { format!("{key}.") };
        let name = Cell::new(self.known_name());
        let at = written.span().start;
        Some(Self { reader: self.reader, table, which, route: self.route, name, prefix, at })
    }

    /// The tables of a list, each of which is a route.
    pub(super) fn tables(&self, key: &'static str, which: &'static [Table]) -> Vec<Self> {
        let Some((written, value)) = self.table.get_key_value(key) else { return Vec::new() };
        let DeValue::Array(list) = value.get_ref() else {
            let sentence = format!("there may be several: write [[{key}]]");
            self.reader.fault(Subject::Gate, key, written.span().start, &sentence);
            return Vec::new();
        };
        let mut sections = Vec::new();
        for (index, one) in list.iter().enumerate() {
            let (at, route) = (one.span().start, Some(index));
            let DeValue::Table(table) = one.get_ref() else {
                let sentence = format!("write [[{key}]], and the keys of the route below");
                self.reader.fault(Subject::Route(index, None), "", at, &sentence);
                continue;
            };
            let (reader, name, prefix) = (self.reader, Cell::default(), String::new());
            let section = Self { reader, table, which, route, name, prefix, at };
            reader.places.borrow_mut().insert((route, String::new()), reader.place(at));
            sections.push(section);
        }
        sections
    }

    /// Notes a fault of the table itself.
    pub(super) fn fault(&self, sentence: &str) {
        let key = self.prefix.trim_end_matches('.');
        self.reader.fault(self.of(), key, self.at, sentence);
    }

    /// Notes a fault of a key.
    pub(super) fn fault_at(&self, key: &str, sentence: &str) {
        let at = self.table.get_key_value(key).map_or(self.at, |(written, _)| written.span().start);
        self.reader.fault(self.of(), &format!("{}{key}", self.prefix), at, sentence);
    }

    /// Notes unknown keys as faults.
    pub(super) fn close(&self) {
        for key in self.table.keys() {
            let name = key.get_ref().as_ref();
            let is_table = |table: &str| {
                matches!(
                    (table, self.which),
                    ("limits" | "route", [Table::Gate]) | ("client" | "upstream", [Table::Route])
                )
            };
            let is_known =
                self.which.iter().any(|table| keys::keys_of(*table).any(|k| k.name == name));
            if !is_known && !is_table(name) {
                let sentence = format!("unknown key: {}", keys::suggestion(name, self.which));
                self.fault_at(name, &sentence);
            }
        }
    }

    fn wrong(&self, key: &str, value: &Spanned<DeValue<'_>>, wrong: &Wrong) {
        let at = wrong.at.unwrap_or_else(|| value.span().start);
        self.reader.fault(self.of(), &format!("{}{key}", self.prefix), at, &wrong.sentence);
    }

    fn note(&self, key: &str, at: usize) {
        let key = (self.route, format!("{}{key}", self.prefix));
        self.reader.places.borrow_mut().insert(key, self.reader.place(at));
    }

    fn of(&self) -> Subject {
        self.route.map_or(Subject::Gate, |index| Subject::Route(index, self.known_name()))
    }

    fn known_name(&self) -> Option<Arc<str>> {
        let name = self.name.take();
        self.name.set(name.clone());
        name
    }
}
