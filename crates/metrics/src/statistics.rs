//! The macro that declares a struct of statistics, and the trait that it implements.

use crate::cells::Places;
use crate::declare::Declared;

/// Declares a struct of statistics: each field is one, its name is the field's, its description the
/// field's documentation.
///
/// A field is a [`Counter`](crate::Counter), a [`Gauge`](crate::Gauge), or a
/// [`Histogram`](crate::Histogram) with the upper bounds of its buckets, in ascending order; or, if a
/// function returns the value, a [`ReadCounter`](crate::ReadCounter) or a
/// [`ReadGauge`](crate::ReadGauge). The struct implements [`Statistics`]; a
/// [`Family`](crate::Family) makes values of it.
///
/// A statistic without a description does not compile:
///
/// ```compile_fail
/// lastbyte_metrics::statistics! {
///     /// What is counted.
///     struct Mute {
///         flows: lastbyte_metrics::Counter,
///     }
/// }
/// ```
///
/// Nor does a name that OpenMetrics would take for another:
///
/// ```compile_fail
/// lastbyte_metrics::statistics! {
///     /// What is counted.
///     struct Doubled {
///         /// Flows accepted.
///         flows_total: lastbyte_metrics::Counter,
///     }
/// }
/// ```
///
/// Nor a time that does not say its unit:
///
/// ```compile_fail
/// use std::time::Duration;
/// lastbyte_metrics::statistics! {
///     /// What is counted.
///     struct Unitless {
///         /// Time to connect.
///         connect: lastbyte_metrics::Histogram<Duration> = &[Duration::from_millis(1)],
///     }
/// }
/// ```
///
/// Nor a whole number of seconds, counted or read:
///
/// ```compile_fail
/// lastbyte_metrics::statistics! {
///     /// What is read.
///     struct Rounded {
///         /// Age of the oldest flow.
///         oldest_flow_seconds: lastbyte_metrics::ReadGauge,
///     }
/// }
/// ```
#[macro_export]
macro_rules! statistics {
    (
        $(#[$of_struct:meta])*
        $visible:vis struct $name:ident {
            $(
                $(#[doc = $line:literal])+
                $seen:vis $field:ident: $kind:ty $(= $bounds:expr)?
            ),+ $(,)?
        }
    ) => {
        $(#[$of_struct])*
        #[derive(Debug)]
        $visible struct $name {
            $(
                $(#[doc = $line])+
                $seen $field: $kind,
            )+
        }

        impl $crate::Statistics for $name {
            fn declared() -> &'static [$crate::Declared] {
                static DECLARED: &[$crate::Declared] = &[
                    $(
                        $crate::Declared::new(
                            ::core::stringify!($field),
                            ::core::concat!($($line),+),
                            <$kind>::kind($($bounds)?),
                        )
                        .with_origin(<$kind>::ORIGIN),
                    )+
                ];
                DECLARED
            }

            fn placed(places: &mut $crate::declared_by_macro::Places<'_>) -> Self {
                Self { $( $field: <$kind>::placed(places), )+ }
            }
        }
    };
}

/// A struct of statistics, as [`statistics!`](crate::statistics!) declares it.
pub trait Statistics: Sized {
    /// Its statistics, in the order of their declaration.
    fn declared() -> &'static [Declared];

    /// Gives each statistic its place among the cells.
    #[doc(hidden)]
    fn placed(places: &mut Places<'_>) -> Self;
}
