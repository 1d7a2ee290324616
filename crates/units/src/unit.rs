/// The unit of a computed number: which fields of a report have, whose other fields say the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unit {
    /// Seconds.
    Seconds,
    /// A share of one.
    Share,
    /// Bits per second.
    BitsPerS,
    /// IP bytes.
    Bytes,
    /// Packets; a mean of them need not be whole.
    Packets,
}
