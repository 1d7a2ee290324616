//! Recordings: events as JSON Lines, the first line a header, so that what was seen once can be looked
//! at again, by other rules, elsewhere.

use std::io::{self, BufRead, Write};

use serde::{Deserialize, Serialize};

use crate::event::Event;

/// The version of the format that this program writes and reads.
const FORMAT: u32 = 1;
/// What the header says the file is.
const RECORDING: &str = "lastbyte doctor";
/// A line is no longer than this, bytes.
const LONGEST: u64 = 1 << 20;

#[derive(Serialize, Deserialize)]
struct Header {
    /// `lastbyte doctor`.
    recording: String,
    format: u32,
}

/// Why a recording cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordingError {
    /// The file cannot be read.
    #[error("line {line}: {error}")]
    Io {
        /// The line that was being read, from 1.
        line: u64,
        /// The kernel's word.
        #[source]
        error: io::Error,
    },
    /// A line is no event of this version.
    #[error("line {line} is no event: {why}")]
    NoEvent {
        /// The line, from 1.
        line: u64,
        /// What the parser said.
        why: String,
    },
    /// It is no recording, or of another version.
    #[error("this is no recording of lastbyte doctor that this version reads: {0}")]
    NoRecording(String),
}

/// Writes a recording.
#[derive(Debug)]
pub struct Writer<W: Write> {
    to: W,
}

impl<W: Write> Writer<W> {
    /// Writes the header.
    ///
    /// # Errors
    /// Those of the file.
    pub fn begin(mut to: W) -> io::Result<Self> {
        let header = Header { recording: RECORDING.to_owned(), format: FORMAT };
        line(&mut to, &header)?;
        Ok(Self { to })
    }

    /// Writes an event.
    ///
    /// # Errors
    /// Those of the file.
    pub fn add(&mut self, event: &Event) -> io::Result<()> {
        line(&mut self.to, event)
    }

    /// Hands everything to the file.
    ///
    /// # Errors
    /// Those of the file.
    pub fn finish(mut self) -> io::Result<W> {
        self.to.flush()?;
        Ok(self.to)
    }
}

fn line(to: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *to, value)?;
    to.write_all(b"\n")
}

/// Reads a recording, event by event.
#[derive(Debug)]
pub struct Reader<R: BufRead> {
    from: R,
    line: u64,
    text: Vec<u8>,
    /// After an error nothing more is read: where the next line begins is not known.
    has_failed: bool,
}

impl<R: BufRead> Reader<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// [`RecordingError::NoRecording`], [`RecordingError::Io`].
    pub fn begin(from: R) -> Result<Self, RecordingError> {
        let mut reader = Self { from, line: 0, text: Vec::new(), has_failed: false };
        let none = |why: String| RecordingError::NoRecording(why);
        if !reader.next_line()? {
            return Err(none("it is empty".to_owned()));
        }
        let header: Header =
            serde_json::from_slice(&reader.text).map_err(|error| none(error.to_string()))?;
        if header.recording != RECORDING {
            return Err(none(format!("its header says {:?}", header.recording)));
        }
        if header.format != FORMAT {
            return Err(none(format!("format {}, not {FORMAT}", header.format)));
        }
        Ok(reader)
    }

    fn next_line(&mut self) -> Result<bool, RecordingError> {
        self.line += 1;
        self.text.clear();
        let mut limited = io::Read::take(&mut self.from, LONGEST);
        let read = limited.read_until(b'\n', &mut self.text);
        let read = read.map_err(|error| RecordingError::Io { line: self.line, error })?;
        if read as u64 == LONGEST && self.text.last() != Some(&b'\n') {
            let why = "it is longer than 1 MiB".to_owned();
            return Err(RecordingError::NoEvent { line: self.line, why });
        }
        Ok(read > 0)
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Event, RecordingError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_failed {
            return None;
        }
        let event = match self.next_line() {
            Ok(false) => return None,
            Ok(true) => serde_json::from_slice(&self.text).map_err(|error| {
                RecordingError::NoEvent { line: self.line, why: error.to_string() }
            }),
            Err(error) => Err(error),
        };
        self.has_failed = event.is_err();
        Some(event)
    }
}
