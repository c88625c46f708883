//! What a rollout would do from here: vehicles for each step, bytes, time, and who can't get there.

use k8s_openapi::jiff::Timestamp;

use super::table::table;
use super::{Fleet, Sight};
use crate::rollout::pick::members;
use crate::rollout::tally::{Standing, Tally};

/// How long an upgrade takes if the firmware doesn't say.
const MINUTES: i64 = 5;

/// Names that are told of those who can't get there.
const NAMES_MAX: usize = 5;

impl Fleet {
    /// What a rollout would do from here; an error if there is none of this name, or it can't be read.
    ///
    /// # Errors
    /// Says which.
    pub fn forecast(&self, name: &str, now: Timestamp) -> Result<String, String> {
        let rollout = self.rollouts.iter().find(|rollout| rollout.metadata.name.as_deref() == Some(name));
        let sight = self.sight(rollout.ok_or_else(|| format!("there is no rollout {name}"))?)?;
        let facts = sight.facts(now);
        let tally = Tally::of(&facts, self.vehicles.iter());
        let counts = &tally.counts;
        let size = sight.firmware.spec.image().map_or(0, |image| image.size);
        let mut text = format!(
            "rollout {name} brings {} ({}) to {} vehicles: {} have it, {} are on their way, {} failed\n\n",
            sight.firmware.spec.version,
            bytes(size),
            counts.eligible,
            counts.succeeded,
            counts.in_progress,
            counts.failed
        );
        text.push_str(&self.steps(&sight, &tally, size));
        if counts.offline > 0 {
            text.push_str(&format!("\n{} are offline; they are told when they are back\n", counts.offline));
        }
        text.push_str(&self.hopeless(&sight, now));
        Ok(text)
    }

    fn steps(&self, sight: &Sight<'_>, tally: &Tally<'_>, size: i64) -> String {
        let terms = &sight.terms;
        let uid = sight.rollout.metadata.uid.as_deref().unwrap_or_default();
        let at_once = terms.concurrent.of(usize::try_from(tally.counts.eligible).unwrap_or_default()).max(1);
        let minutes = sight.firmware.spec.notes.as_ref().and_then(|notes| notes.minutes).unwrap_or(MINUTES);
        let (mut rows, mut all, mut seconds) = (Vec::new(), 0, 0);
        let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        for (at, members) in members(uid, terms, tally, terms.steps.len()).into_iter().enumerate() {
            let (vehicles, stair) = (members.len(), &terms.steps[at]);
            let waves = count(vehicles.div_ceil(at_once));
            let volume = size.saturating_mul(count(vehicles));
            let transfer = sight.rollout.spec.bytes_per_second.map_or(0, |rate| volume / rate.max(1));
            let is_last = at + 1 == terms.steps.len();
            let soak = if is_last { 0 } else { stair.soak.as_secs() };
            let step = (waves * minutes * 60).max(transfer) + soak;
            (all, seconds) = (all + vehicles, seconds + step);
            rows.push(vec![
                (at + 1).to_string(),
                vehicles.to_string(),
                bytes(volume),
                span(soak),
                span(step),
                if stair.approve { "has to be approved" } else { "" }.to_owned(),
            ]);
        }
        rows.push(vec![
            "all".to_owned(),
            all.to_string(),
            bytes(size.saturating_mul(count(all))),
            String::new(),
            span(seconds),
            String::new(),
        ]);
        table(&["STEP", "VEHICLES", "BYTES", "SOAK", "LIKELY TIME", ""], &rows)
    }

    fn hopeless(&self, sight: &Sight<'_>, now: Timestamp) -> String {
        let facts = sight.facts(now);
        let mut reasons: std::collections::BTreeMap<&str, Vec<&str>> = std::collections::BTreeMap::new();
        for vehicle in &self.vehicles {
            let why = match facts.standing(vehicle) {
                Standing::Blocked(why) => why,
                Standing::Failed => vehicle.status.retry.as_deref().map_or("Failed", |retry| &retry.last_reason),
                _ => continue,
            };
            reasons.entry(why).or_default().push(vehicle.metadata.key.name());
        }
        let mut text = String::new();
        for (why, names) in reasons {
            let more = names.len().saturating_sub(NAMES_MAX);
            let shown = names.iter().take(NAMES_MAX).copied().collect::<Vec<_>>().join(", ");
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            text.push_str(&format!("\n{} can't get there ({why}): {shown}{more}\n", names.len()));
        }
        text
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
