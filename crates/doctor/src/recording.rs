//! Recordings: events as JSON Lines after a header line, to be replayed elsewhere or through other
//! rules. A file may be compressed with zstd (RFC 8878), as `--record` does: a busy machine writes
//! megabytes of lines a second. `zstdcat FILE` shows the lines.

use std::fmt;
use std::io::{self, BufRead, BufReader, ErrorKind, Write};

use serde::{Deserialize, Serialize};

use crate::event::Event;

/// The version of the format that this program writes and reads.
const FORMAT: u32 = 1;
/// The kind of file in the header.
const RECORDING: &str = "lastbyte doctor";
/// Limit on the length of a line, bytes.
const LONGEST: u64 = 1 << 20;
/// The magic number of a zstd frame: RFC 8878, section 3.1.1.
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// zstd's own default: the next levels take twice the time for a tenth less.
const LEVEL: i32 = 3;
/// A reader spends no more than 2^23 bytes, 8 MiB, on the window of a file from elsewhere: RFC 8878,
/// section 3.1.1.1.2. The writer's level asks for 2^21.
const WINDOW_LOG: u32 = 23;

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
        /// The kernel's error.
        #[source]
        error: io::Error,
    },
    /// The file is truncated: its writer was killed, or it was not copied completely.
    #[error("line {line}: the recording is truncated here")]
    Cut {
        /// The line that is missing, from 1.
        line: u64,
    },
    /// A line is no event of this version.
    #[error("line {line} is no event: {why}")]
    NoEvent {
        /// The line, from 1.
        line: u64,
        /// The parser's error.
        why: String,
    },
    /// The file is no recording, or of another version.
    #[error("this is no recording of lastbyte doctor that this version reads: {0}")]
    NoRecording(String),
}

/// Writes a recording.
#[derive(Debug)]
pub struct Writer<W: Write> {
    to: Sink<W>,
}

enum Sink<W: Write> {
    Plain(W),
    Packed(zstd::Encoder<'static, W>),
}

impl<W: Write> Writer<W> {
    /// Writes the header of a recording that is plain text.
    ///
    /// # Errors
    /// Those of the file.
    pub fn plain(to: W) -> io::Result<Self> {
        Self::begin(Sink::Plain(to))
    }

    /// Writes the header of a recording that is compressed with zstd.
    ///
    /// # Errors
    /// Those of the file.
    pub fn packed(to: W) -> io::Result<Self> {
        let mut encoder = zstd::Encoder::new(to, LEVEL)?;
        // The checksum detects damage.
        encoder.include_checksum(true)?;
        Self::begin(Sink::Packed(encoder))
    }

    fn begin(mut to: Sink<W>) -> io::Result<Self> {
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

    /// Flushes the recording to the file, so that it is readable even if the writer is killed. If
    /// compressed, each call costs some bytes: once a second is often enough.
    ///
    /// # Errors
    /// Those of the file.
    pub fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }

    /// Ends the recording and flushes it to the file.
    ///
    /// # Errors
    /// Those of the file.
    pub fn finish(self) -> io::Result<W> {
        let mut to = match self.to {
            Sink::Plain(to) => to,
            Sink::Packed(encoder) => encoder.finish()?,
        };
        to.flush()?;
        Ok(to)
    }
}

impl<W: Write> Write for Sink<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(to) => to.write(bytes),
            Self::Packed(encoder) => encoder.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(to) => to.flush(),
            Self::Packed(encoder) => encoder.flush(),
        }
    }
}

impl<W: Write> fmt::Debug for Sink<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain(_) => "Plain",
            Self::Packed(_) => "Packed",
        })
    }
}

fn line(to: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *to, value)?;
    to.write_all(b"\n")
}

/// Reads a recording, plain or compressed, event by event.
pub struct Reader<R: BufRead> {
    from: Source<R>,
    line: u64,
    text: Vec<u8>,
    /// After an error nothing more is read, since the start of the next line is unknown.
    has_failed: bool,
}

enum Source<R: BufRead> {
    Plain(R),
    Packed(BufReader<zstd::Decoder<'static, R>>),
}

impl<R: BufRead> Reader<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// [`RecordingError::NoRecording`], [`RecordingError::Io`].
    pub fn begin(from: R) -> Result<Self, RecordingError> {
        let from = Source::of(from).map_err(|error| RecordingError::Io { line: 1, error })?;
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
        let line = self.line;
        let read = match &mut self.from {
            Source::Plain(from) => bounded_line(from, &mut self.text),
            Source::Packed(from) => bounded_line(from, &mut self.text),
        };
        let read = read.map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => RecordingError::Cut { line },
            _ => RecordingError::Io { line, error },
        })?;
        if read as u64 == LONGEST && !self.is_whole() {
            let why = "it is longer than 1 MiB".to_owned();
            return Err(RecordingError::NoEvent { line, why });
        }
        Ok(read > 0)
    }

    fn is_whole(&self) -> bool {
        self.text.last() == Some(&b'\n')
    }

    fn event(&self) -> Result<Event, RecordingError> {
        serde_json::from_slice(&self.text).map_err(|error| match self.is_whole() {
            true => RecordingError::NoEvent { line: self.line, why: error.to_string() },
            false => RecordingError::Cut { line: self.line },
        })
    }
}

fn bounded_line(from: &mut impl BufRead, text: &mut Vec<u8>) -> io::Result<usize> {
    io::Read::take(from, LONGEST).read_until(b'\n', text)
}

impl<R: BufRead> Source<R> {
    fn of(mut from: R) -> io::Result<Self> {
        if !from.fill_buf()?.starts_with(&ZSTD) {
            return Ok(Self::Plain(from));
        }
        let mut decoder = zstd::Decoder::with_buffer(from)?;
        decoder.window_log_max(WINDOW_LOG)?;
        Ok(Self::Packed(BufReader::new(decoder)))
    }
}

impl<R: BufRead> fmt::Debug for Reader<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("line", &self.line).finish_non_exhaustive()
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
            Ok(true) => self.event(),
            Err(error) => Err(error),
        };
        self.has_failed = event.is_err();
        Some(event)
    }
}
