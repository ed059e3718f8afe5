//! All figures side by side: medians over the rounds, percentiles over all samples, and the bars that Crablet has set itself.

use std::collections::BTreeSet;
use std::time::Duration;

use super::audit::Requests;
use super::burst::Half;
use super::floor::Floor;
use super::subject::Turn;
use crate::cluster::Which;

#[derive(Debug, Default)]
pub struct Results {
    pub floors: Vec<Floor>,
    pub turns: Vec<Turn>,
}

pub struct Section {
    pub title: String,
    pub lines: Vec<Line>,
}

/// One figure of both kubelets. What was not measured is `None`.
pub struct Line {
    pub what: String,
    unit: Unit,
    crablet: Option<f64>,
    upstream: Option<f64>,
    floor: Option<f64>,
    /// What Crablet must not exceed.
    bar: Option<f64>,
}

#[derive(Clone, Copy)]
enum Unit {
    MiB,
    Percent,
    Seconds,
    Milliseconds,
    Count,
    PerSecond,
}

/// A burst may take this much more than the calls alone.
const OVER_THE_FLOOR: f64 = 1.1;

impl Line {
    fn new(what: impl Into<String>, unit: Unit, (crablet, upstream): (Option<f64>, Option<f64>)) -> Line {
        Line { what: what.into(), unit, crablet, upstream, floor: None, bar: None }
    }

    fn at_most(self, bar: f64) -> Line {
        Line { bar: Some(bar), ..self }
    }

    fn with_floor(self, floor: Option<f64>) -> Line {
        Line { floor, ..self }
    }

    fn beside(self, floor: Option<f64>) -> Line {
        Line { floor, bar: floor.map(|floor| floor * OVER_THE_FLOOR), ..self }
    }

    /// Crablet, upstream, how many times as much upstream needs, the floor, the bar and whether it is met.
    pub fn cells(&self) -> [String; 5] {
        let shown = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| self.shown(value));
        let ratio = match (self.crablet, self.upstream) {
            (Some(ours), Some(theirs)) if ours > 0.0 => format!("1 : {:.1}", theirs / ours),
            _ => "-".to_owned(),
        };
        [shown(self.crablet), shown(self.upstream), ratio, shown(self.floor), self.verdict()]
    }

    fn verdict(&self) -> String {
        let Some(bar) = self.bar else { return String::new() };
        let asked = format!("at most {}", self.shown(bar));
        match self.crablet {
            None => asked,
            Some(ours) if ours <= bar => format!("{asked}: met"),
            Some(_) => format!("{asked}: missed"),
        }
    }

    fn shown(&self, value: f64) -> String {
        match self.unit {
            Unit::MiB => format!("{value:.1} MiB"),
            Unit::Percent => format!("{value:.2} %"),
            Unit::Seconds => format!("{value:.2} s"),
            Unit::Milliseconds => format!("{:.0} ms", value * 1000.0),
            Unit::Count => format!("{value:.0}"),
            Unit::PerSecond => format!("{value:.1}/s"),
        }
    }
}

impl Results {
    pub fn sections(&self, pods: usize) -> Vec<Section> {
        let section = |title: String, lines| Section { title, lines };
        vec![
            section("at rest, no pods".into(), self.rest(12.0, false)),
            section(format!("at rest, {pods} pods"), self.rest(20.0, true)),
            section(
                format!("{pods} pods to Ready"),
                self.half(|turn| &turn.up, |f| (f.up, f.machine_up), Some(1.0)),
            ),
            section(
                format!("{pods} pods to gone"),
                self.half(|turn| &turn.down, |f| (f.stopped, f.machine_stopped), None),
            ),
            section("reactions".into(), self.reactions()),
            section(
                "start-up and size".into(),
                vec![
                    Line::new("process start to node Ready", Unit::Seconds, self.both(|turn| turn.start_up)),
                    Line::new("program", Unit::MiB, self.both(|turn| turn.binary_mib)),
                ],
            ),
            section(
                format!("requests to the API server, {pods} pods to Ready"),
                self.requests(|turn| &turn.up),
            ),
            section(
                format!("requests to the API server, {pods} pods to gone"),
                self.requests(|turn| &turn.down),
            ),
        ]
    }

    fn rest(&self, most_mib: f64, full: bool) -> Vec<Line> {
        let rest = |turn: &Turn| if full { turn.full } else { turn.empty };
        vec![
            Line::new("memory (RSS)", Unit::MiB, self.both(|turn| rest(turn).rss_mib)).at_most(most_mib),
            Line::new("memory (PSS)", Unit::MiB, self.both(|turn| rest(turn).pss_mib)),
            Line::new("memory since the start (peak RSS)", Unit::MiB, self.both(|turn| rest(turn).peak_mib)),
            Line::new("CPU", Unit::Percent, self.both(|turn| rest(turn).cpu_percent)).at_most(0.7),
            Line::new("wake-ups", Unit::PerSecond, self.both(|turn| rest(turn).wakeups_per_second)),
            Line::new("threads", Unit::Count, self.both(|turn| rest(turn).threads)),
            Line::new("containerd's CPU", Unit::Percent, self.both(|turn| rest(turn).runtime_cpu_percent)),
        ]
    }

    /// `floor` gives the time that it took and the machine's work.
    fn half(
        &self,
        half: impl Fn(&Turn) -> &Half,
        floor: impl Fn(&Floor) -> (Duration, f64),
        most_cpu: Option<f64>,
    ) -> Vec<Line> {
        let cpu = Line::new("CPU time", Unit::Seconds, self.both(|turn| half(turn).cpu));
        let asked = |turn: &Turn| half(turn).requests.values().sum::<usize>() as f64;
        let mut lines = vec![
            Line::new("until the last", Unit::Seconds, self.both(|turn| half(turn).took.as_secs_f64()))
                .beside(self.floor(|f| floor(f).0.as_secs_f64())),
            match most_cpu {
                Some(most) => cpu.at_most(most),
                None => cpu,
            },
            Line::new("containerd's CPU time", Unit::Seconds, self.both(|turn| half(turn).runtime_cpu)),
            Line::new(
                "API server's and etcd's CPU time",
                Unit::Seconds,
                self.both(|turn| half(turn).servers_cpu),
            ),
            Line::new("CPU time of the machine", Unit::Seconds, self.both(|turn| half(turn).machine_cpu))
                .with_floor(self.floor(|f| floor(f).1)),
            Line::new("requests to the API server", Unit::Count, self.both(asked)),
        ];
        let missing = self.both(|turn| half(turn).missing as f64);
        if [missing.0, missing.1].into_iter().flatten().any(|count| count > 0.0) {
            lines.push(Line::new("pods that did not get there", Unit::Count, missing));
        }
        lines
    }

    fn reactions(&self) -> Vec<Line> {
        let line = |what: &str, percent: f64, of: fn(&Turn) -> &[f64]| {
            let value =
                |which| percentile(self.of(which).flat_map(|turn| of(turn).to_vec()).collect(), percent);
            let both = (value(Which::Crablet), value(Which::Upstream));
            Line::new(format!("{what}, p{percent:.0}"), Unit::Milliseconds, both)
        };
        vec![
            line("create to Running", 50.0, |turn| &turn.reactions.running),
            line("create to Running", 99.0, |turn| &turn.reactions.running),
            line("container's exit to Succeeded", 50.0, |turn| &turn.reactions.succeeded).at_most(0.1),
            line("container's exit to Succeeded", 99.0, |turn| &turn.reactions.succeeded),
            line("delete to gone", 50.0, |turn| &turn.reactions.gone),
            line("delete to gone", 99.0, |turn| &turn.reactions.gone),
        ]
    }

    fn requests(&self, half: impl Fn(&Turn) -> &Half) -> Vec<Line> {
        let of = |turn: &Turn| half(turn).requests.clone();
        let all: BTreeSet<String> = self.turns.iter().flat_map(|turn| of(turn).into_keys()).collect();
        let count = |requests: &Requests, what: &str| requests.get(what).copied().unwrap_or(0) as f64;
        all.into_iter()
            .map(|what| {
                let both = self.both(|turn| count(&half(turn).requests, &what));
                Line::new(what.clone(), Unit::Count, both)
            })
            .collect()
    }

    fn of(&self, which: Which) -> impl Iterator<Item = &Turn> {
        self.turns.iter().filter(move |turn| turn.which == which)
    }

    /// Crablet's and upstream's medians.
    fn both(&self, value: impl Fn(&Turn) -> f64) -> (Option<f64>, Option<f64>) {
        let median = |which| percentile(self.of(which).map(&value).collect(), 50.0);
        (median(Which::Crablet), median(Which::Upstream))
    }

    fn floor(&self, value: impl Fn(&Floor) -> f64) -> Option<f64> {
        percentile(self.floors.iter().map(value).collect(), 50.0)
    }

    /// Seconds that the bare client took to remove what it had stopped.
    pub fn floor_removal(&self) -> Option<f64> {
        self.floor(|floor| floor.removed.as_secs_f64())
    }
}

/// Between two samples it lies between them. `None` without samples.
fn percentile(mut samples: Vec<f64>, percent: f64) -> Option<f64> {
    samples.sort_by(f64::total_cmp);
    let place = percent / 100.0 * samples.len().checked_sub(1)? as f64;
    let (below, part) = (place.floor() as usize, place.fract());
    let above = samples.get(below + 1).unwrap_or(&samples[below]);
    Some(samples[below] + (above - samples[below]) * part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_lie_between_samples() {
        assert_eq!(percentile(Vec::new(), 50.0), None);
        assert_eq!(percentile(vec![3.0], 99.0), Some(3.0));
        assert_eq!(percentile(vec![4.0, 1.0, 3.0, 2.0], 50.0), Some(2.5));
        assert_eq!(percentile(vec![1.0, 2.0], 100.0), Some(2.0));
    }

    #[test]
    fn a_bar_is_met_or_missed_by_crablet_alone() {
        let line = |ours, theirs| Line::new("x", Unit::Seconds, (ours, theirs)).beside(Some(10.0));
        assert_eq!(
            line(Some(5.0), Some(20.0)).cells(),
            ["5.00 s", "20.00 s", "1 : 4.0", "10.00 s", "at most 11.00 s: met"]
        );
        assert_eq!(line(Some(12.0), None).cells()[4], "at most 11.00 s: missed");
        assert_eq!(line(None, Some(1.0)).cells()[4], "at most 11.00 s");
    }
}
