//! Writes Prometheus' text format for series that are computed from the current objects at each scrape, so that deleted
//! objects have no series.
//!
//! Counters and histograms are written by the `prometheus` crate instead.

use std::fmt::Write;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Gauge,
    Summary,
}

impl Kind {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Gauge => "gauge",
            Self::Summary => "summary",
        }
    }
}

/// A metric with its series. A metric without series is not written.
pub(crate) struct Family<'a> {
    text: &'a mut String,
    name: &'a str,
    kind: Kind,
    help: &'a str,
    labels: &'a [&'a str],
    /// The order in which labels are written: by name, as the `prometheus` crate and upstream write them. Each value is
    /// an index into `labels`.
    order: Vec<usize>,
    has_header: bool,
}

impl<'a> Family<'a> {
    pub(crate) fn gauge(text: &'a mut String, name: &'a str, help: &'a str, labels: &'a [&'a str]) -> Self {
        Self::new(text, name, Kind::Gauge, help, labels)
    }

    pub(crate) fn summary(text: &'a mut String, name: &'a str, help: &'a str, labels: &'a [&'a str]) -> Self {
        Self::new(text, name, Kind::Summary, help, labels)
    }

    fn new(text: &'a mut String, name: &'a str, kind: Kind, help: &'a str, labels: &'a [&'a str]) -> Self {
        let mut order: Vec<usize> = (0..labels.len()).collect();
        order.sort_unstable_by_key(|position| labels[*position]);
        Self { text, name, kind, help, labels, order, has_header: false }
    }

    /// Adds a series with the label values, in the order of the labels.
    pub(crate) fn set<S: AsRef<str>>(&mut self, values: &[S], value: f64) {
        self.sample("", values, None, value);
    }

    /// Adds a series. `suffix` is appended to the metric name, and `more` is a label in addition to those of the
    /// metric.
    pub(crate) fn sample<S: AsRef<str>>(
        &mut self,
        suffix: &str,
        values: &[S],
        more: Option<(&str, &str)>,
        value: f64,
    ) {
        debug_assert_eq!(values.len(), self.labels.len(), "{}", self.name);
        if !self.has_header {
            self.has_header = true;
            let (name, kind) = (self.name, self.kind.as_str());
            self.text.push_str("# HELP ");
            self.text.push_str(name);
            self.text.push(' ');
            self.text.push_str(self.help);
            // Writing to a string cannot fail.
            let _ = write!(self.text, "\n# TYPE {name} {kind}\n");
        }
        self.text.push_str(self.name);
        self.text.push_str(suffix);
        let of = |position: &usize| Some((*self.labels.get(*position)?, values.get(*position)?.as_ref()));
        let pairs = self.order.iter().filter_map(of);
        let mut opening = '{';
        for (label, value) in pairs.chain(more) {
            self.text.push(opening);
            self.text.push_str(label);
            self.text.push_str("=\"");
            escape(self.text, value);
            self.text.push('"');
            opening = ',';
        }
        if opening == ',' {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
    }
}

fn escape(text: &mut String, value: &str) {
    for letter in value.chars() {
        match letter {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            letter => text.push(letter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn family_has_one_header_and_all_series() {
        let mut text = String::new();
        let mut family = Family::gauge(&mut text, "a", "What it is.", &["y", "x"]);
        family.set(&["a \"quoted\" \\ word\n", "1"], 0.5);
        family.set(&["", "2"], 3.0);
        let expected = "# HELP a What it is.\n# TYPE a gauge\n\
            a{x=\"1\",y=\"a \\\"quoted\\\" \\\\ word\\n\"} 0.5\na{x=\"2\",y=\"\"} 3\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn family_without_series_is_not_written() {
        let mut text = String::new();
        let _ = Family::gauge(&mut text, "nobody", "Nothing.", &["x"]);
        let mut family = Family::summary(&mut text, "b_seconds", "How long.", &[]);
        family.sample::<&str>("", &[], Some(("quantile", "0.5")), f64::NAN);
        family.sample::<&str>("_count", &[], None, 0.0);
        let expected = "# HELP b_seconds How long.\n# TYPE b_seconds summary\n\
            b_seconds{quantile=\"0.5\"} NaN\nb_seconds_count 0\n";
        assert_eq!(text, expected);
    }
}
