//! Prometheus' text format, version 0.0.4. Numbers are written as Go writes them: a bucket's bound is a label, and labels
//! that are written differently are different series.

use std::fmt::Write;

use prometheus::proto::{LabelPair, Metric, MetricFamily, MetricType};

pub fn write(families: &[MetricFamily]) -> String {
    let mut out = String::new();
    for family in families {
        let name = family.name();
        let kind = match family.get_field_type() {
            MetricType::COUNTER => "counter",
            MetricType::GAUGE => "gauge",
            MetricType::HISTOGRAM => "histogram",
            MetricType::SUMMARY => "summary",
            MetricType::UNTYPED => "untyped",
        };
        let help = family.help().replace('\\', "\\\\").replace('\n', "\\n");
        // Writing to a string cannot fail.
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for metric in family.get_metric() {
            match family.get_field_type() {
                MetricType::COUNTER => {
                    sample(&mut out, name, "", metric, None, metric.get_counter().get_value())
                }
                MetricType::GAUGE => sample(&mut out, name, "", metric, None, metric.get_gauge().get_value()),
                MetricType::HISTOGRAM => histogram(&mut out, name, metric),
                // Nothing here has these.
                MetricType::SUMMARY | MetricType::UNTYPED => {}
            }
        }
    }
    out
}

#[allow(
    clippy::cast_precision_loss,
    reason = "Go's encoder writes counts as whole numbers, and so does `number` below 2^53"
)]
fn histogram(out: &mut String, name: &str, metric: &Metric) {
    let histogram = metric.get_histogram();
    let count = histogram.get_sample_count() as f64;
    for bucket in histogram.get_bucket() {
        let bound = number(bucket.upper_bound());
        sample(out, name, "_bucket", metric, Some(&bound), bucket.cumulative_count() as f64);
    }
    sample(out, name, "_bucket", metric, Some("+Inf"), count);
    sample(out, name, "_sum", metric, None, histogram.get_sample_sum());
    sample(out, name, "_count", metric, None, count);
}

fn sample(out: &mut String, name: &str, suffix: &str, metric: &Metric, bound: Option<&str>, value: f64) {
    out.push_str(name);
    out.push_str(suffix);
    let labels = metric.get_label().iter().map(|label: &LabelPair| (label.name(), label.value()));
    let mut separator = '{';
    for (name, value) in labels.chain(bound.map(|bound| ("le", bound))) {
        let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let _ = write!(out, "{separator}{name}=\"{value}\"");
        separator = ',';
    }
    if separator == ',' {
        out.push('}');
    }
    // Counts of a histogram are whole numbers of any length.
    let value = if matches!(suffix, "_bucket" | "_count") { format!("{value}") } else { number(value) };
    let _ = writeln!(out, " {value}");
}

/// As few digits as say which number it is, with an exponent from a million on and below a ten-thousandth.
fn number(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    if value == 0.0 {
        return "0".to_owned();
    }
    let scientific = format!("{value:e}");
    match scientific.split_once('e').and_then(|(digits, power)| Some((digits, power.parse::<i32>().ok()?))) {
        Some((digits, power)) if !(-4..21).contains(&power) || power >= 6 => {
            let sign = if power < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", power.unsigned_abs())
        }
        _ => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use prometheus::{Histogram, HistogramOpts, IntCounterVec, Opts, Registry};

    use super::*;

    #[test]
    fn numbers_are_written_as_go_writes_them() {
        for (value, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (-2.5, "-2.5"),
            (0.005, "0.005"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (999_999.0, "999999"),
            (1_048_576.0, "1.048576e+06"),
            (1e100, "1e+100"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn a_family_is_written_as_prometheus_reads_it() {
        let registry = Registry::new();
        let counter = IntCounterVec::new(Opts::new("seen_total", "What was seen.\nAll of it."), &["b", "a"]);
        let counter = counter.expect("a counter");
        counter.with_label_values(&["x\"\\\n", "y"]).inc_by(2);
        let histogram = HistogramOpts::new("took_seconds", "How long.").buckets(vec![0.1, 1e6]);
        let histogram = Histogram::with_opts(histogram).expect("a histogram");
        histogram.observe(0.05);
        histogram.observe(2.0);
        registry.register(Box::new(counter)).expect("a new name");
        registry.register(Box::new(histogram)).expect("a new name");
        let expected = r#"# HELP seen_total What was seen.\nAll of it.
# TYPE seen_total counter
seen_total{a="y",b="x\"\\\n"} 2
# HELP took_seconds How long.
# TYPE took_seconds histogram
took_seconds_bucket{le="0.1"} 1
took_seconds_bucket{le="1e+06"} 2
took_seconds_bucket{le="+Inf"} 2
took_seconds_sum 2.05
took_seconds_count 2
"#;
        assert_eq!(write(&registry.gather()), expected);
    }
}
