//! How a fleet fares.

use std::collections::BTreeMap;

use kube::ResourceExt;

use super::Fleet;
use super::table::table;
use crate::phase::Phase;
use crate::version;

impl Fleet {
    /// How many vehicles are where, which versions they run, and how far rollouts are.
    #[must_use]
    pub fn overview(&self) -> String {
        let count = |is: &dyn Fn(Option<Phase>) -> bool| {
            self.vehicles.iter().filter(|vehicle| is(vehicle.status.phase)).count().to_string()
        };
        let connected = self.vehicles.iter().filter(|vehicle| vehicle.is_connected()).count();
        let is_updating = |phase: Option<Phase>| {
            phase.is_some_and(|phase| (Phase::Downloading..=Phase::RollingBack).contains(&phase))
        };
        let head = ["VEHICLES", "CONNECTED", "UP TO DATE", "UPDATING", "WAITING", "RETRYING", "FAILED"];
        let row = vec![
            self.vehicles.len().to_string(),
            connected.to_string(),
            count(&|phase| phase == Some(Phase::UpToDate)),
            count(&is_updating),
            count(&|phase| matches!(phase, None | Some(Phase::Pending | Phase::Waiting))),
            count(&|phase| phase == Some(Phase::RetryBackoff)),
            count(&|phase| phase == Some(Phase::Failed)),
        ];
        let parts = [table(&head, &[row]), self.versions(), self.rollouts()];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n")
    }

    fn versions(&self) -> String {
        let mut versions: BTreeMap<&str, [usize; 2]> = BTreeMap::new();
        for vehicle in &self.vehicles {
            if let Some(running) = vehicle.running() {
                versions.entry(running).or_default()[0] += 1;
            }
            if let Some(wanted) = vehicle.wanted() {
                versions.entry(wanted).or_default()[1] += 1;
            }
        }
        if versions.is_empty() {
            return String::new();
        }
        let mut all: Vec<_> = versions.into_iter().collect();
        all.sort_by(|(one, _), (other, _)| version::compare(one, other));
        let row = |(version, [run, wanted]): (&str, [usize; 2])| {
            vec![version.to_owned(), run.to_string(), wanted.to_string()]
        };
        table(&["VERSION", "RUN", "WANTED"], &all.into_iter().map(row).collect::<Vec<_>>())
    }

    fn rollouts(&self) -> String {
        if self.rollouts.is_empty() {
            return String::new();
        }
        let row = |rollout: &crate::kinds::Rollout| {
            let status = rollout.status.clone().unwrap_or_default();
            let said = status.conditions.iter().find(|said| said.type_ == "Progressing");
            vec![
                rollout.name_any(),
                rollout.spec.firmware_ref.name.clone(),
                status.phase.unwrap_or_else(|| "Pending".to_owned()),
                status.step_text,
                format!("{}/{}", status.counts.succeeded, status.counts.eligible),
                said.map(|said| said.message.clone()).unwrap_or_default(),
            ]
        };
        let rows: Vec<_> = self.rollouts.iter().map(row).collect();
        table(&["ROLLOUT", "FIRMWARE", "PHASE", "STEP", "UPDATED", "MESSAGE"], &rows)
    }
}
