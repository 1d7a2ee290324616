//! A snapshot as OpenMetrics text.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::{self, Registry};

use crate::declare::{Kind, Unit, check_word};
use crate::snapshot::{Reading, Snapshot, Value, escaped};

/// The media type of the text, for the header `Content-Type` (OpenMetrics 1.0, "Protocol
/// Negotiation").
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

impl Snapshot {
    /// The OpenMetrics 1.0 text, to its end mark. Each name has the prefix before it, such as
    /// `lastbyte_gate`.
    ///
    /// # Panics
    /// If the prefix is not of `a-z`, `0-9` and `_`, or does not begin with a letter.
    #[must_use]
    pub fn open_metrics(&self, prefix: &str) -> String {
        check_word(prefix);
        let mut registry = Registry::with_prefix(prefix);
        registry.register_collector(Box::new(Readings(self.readings().to_vec())));
        let mut text = String::new();
        // It writes to memory, and all names were checked at their declaration.
        encode(&mut text, &registry).unwrap_or_else(|_| panic!("a snapshot has a text"));
        text
    }
}

#[derive(Debug)]
struct Readings(Vec<Reading>);

impl Collector for Readings {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|reading| encode_reading(reading, &mut encoder))
    }
}

fn encode_reading(reading: &Reading, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let declared = reading.declared();
    let kind = match declared.kind() {
        Kind::Counter => MetricType::Counter,
        Kind::Gauge => MetricType::Gauge,
        Kind::Histogram(_) => MetricType::Histogram,
    };
    // The encoder adds the unit to the name by itself.
    let unit = declared.unit().map(|unit| match unit {
        Unit::Bytes => registry::Unit::Bytes,
        Unit::Seconds => registry::Unit::Seconds,
    });
    let ending = declared.unit().map_or(0, |unit| unit.word().len() + "_".len());
    let name = &declared.name()[..declared.name().len() - ending];
    // It writes a description unchanged.
    let description = escaped(declared.description());

    let mut metric = encoder.encode_descriptor(name, &description, unit.as_ref(), kind)?;
    for point in reading.points() {
        let value = reading.value(point);
        // An unknown value has no sample: a collector shows a gap.
        if value == Value::Unknown {
            continue;
        }
        if point.member().is_empty() {
            encode_value(&value, &mut metric)?;
        } else {
            let label = [(reading.label(), point.member())];
            encode_value(&value, &mut metric.encode_family(&label)?)?;
        }
    }
    Ok(())
}

fn encode_value(value: &Value, metric: &mut MetricEncoder<'_>) -> fmt::Result {
    match value {
        Value::Counter(count) => metric.encode_counter(count, None::<&Exemplar<NoLabelSet, f64>>),
        Value::Gauge(level) => metric.encode_gauge(level),
        Value::Histogram(seen) => {
            metric.encode_histogram::<NoLabelSet>(seen.sum, seen.count, &seen.buckets, None)
        }
        Value::Unknown => Ok(()),
    }
}
