//! A forecast in words.

use super::super::table::table;
use super::{Forecast, Hopeless, StepForecast};
use crate::rollout::plan::Course;

impl Forecast {
    /// For people.
    #[must_use]
    pub fn text(&self) -> String {
        let counts = &self.counts;
        let mut text = format!(
            "rollout {} brings {} ({}) to {} vehicles: {} have it, {} are on their way, {} failed\n",
            self.rollout,
            self.version,
            bytes(self.size),
            counts.eligible,
            counts.succeeded,
            counts.in_progress,
            counts.failed
        );
        text.push_str(&format!("now {}: {}\n", self.phase, self.message));
        match &self.back {
            Some(back) => text.push_str(&format!(
                "\n{} are still to be told to go back, {} are on their way back, {} are offline\n",
                back.ready, back.returning, back.awaited
            )),
            None => text.push_str(&self.climb()),
        }
        if counts.offline > 0 {
            text.push_str(&format!("\n{} are offline; they are told when they are back\n", counts.offline));
        }
        self.hopeless.iter().for_each(|hopeless| text.push_str(&hopeless.text()));
        text
    }

    fn climb(&self) -> String {
        let mut rows: Vec<_> = self.steps.iter().map(StepForecast::row).collect();
        rows.push(vec![
            "all".to_owned(),
            String::new(),
            self.vehicles.to_string(),
            bytes(self.bytes),
            String::new(),
            String::new(),
            self.seconds.map_or_else(|| "?".to_owned(), span),
            self.done.as_ref().map(|done| format!("done {done}")).unwrap_or_default(),
        ]);
        let heads = ["STEP", "WHO", "VEHICLES", "BYTES", "BEGINS", "SOAK", "LIKELY TIME", ""];
        let mut text = format!("\n{}\nat most {} at once", table(&heads, &rows), self.at_once);
        if let Some(label) = &self.group_by {
            let group = |group: &super::GroupForecast| {
                let value = if group.value.is_empty() { "(none)" } else { &group.value };
                format!("{value} {} of {}", group.at_once, group.vehicles)
            };
            let groups: Vec<_> = self.groups.iter().map(group).collect();
            text.push_str(&format!("; by {label}: {}", groups.join(", ")));
        }
        if let Some(window) = &self.window {
            text.push_str(&format!("; only in the window {window}"));
        }
        if self.in_own_windows > 0 {
            text.push_str(&format!("; {} wait for windows of their own", self.in_own_windows));
        }
        let asks = self.steps.iter().any(|step| step.notes.iter().any(|note| note == "has to be approved"));
        if asks {
            text.push_str("; approvals are taken to come at once");
        }
        if self.phase == Course::Paused.word() {
            text.push_str("; all of this as if it went on now");
        }
        text + "\n"
    }
}

impl StepForecast {
    fn row(&self) -> Vec<String> {
        vec![
            self.name.as_ref().map_or_else(|| self.step.to_string(), |name| format!("{} {name}", self.step)),
            self.who.clone(),
            self.vehicles.to_string(),
            bytes(self.bytes),
            self.begins.clone().unwrap_or_else(|| "-".to_owned()),
            span(self.soak_seconds),
            self.seconds.map_or_else(|| "-".to_owned(), span),
            self.notes.join("; "),
        ]
    }
}

impl Hopeless {
    fn text(&self) -> String {
        let more = self.vehicles.saturating_sub(self.names.len());
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("\n{} can't get there ({}): {}{more}\n", self.vehicles, self.reason, self.names.join(", "))
    }
}

fn bytes(count: i64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB", "PB"];
    let (mut value, mut unit) = (count as f64, 0);
    while value >= 1000.0 && unit + 1 < units.len() {
        (value, unit) = (value / 1000.0, unit + 1);
    }
    if unit == 0 { format!("{count} B") } else { format!("{value:.1} {}", units[unit]) }
}

fn span(seconds: i64) -> String {
    match seconds {
        0 => "-".to_owned(),
        _ => setpoint_api::time::format_duration(seconds.saturating_mul(1_000_000_000)),
    }
}
