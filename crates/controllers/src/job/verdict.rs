//! Whether a Job is over, and how.

use k8s_openapi::api::batch::v1::{Job, JobCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// How a Job ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub end: End,
    pub reason: String,
    pub message: String,
    /// Whether the status says so already, so that nothing can change it any more.
    pub is_written: bool,
}

/// The two ways to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Success,
    Failure,
}

impl End {
    /// The condition that says how it will end, while pods are still there.
    pub fn interim(self) -> &'static str {
        match self {
            End::Success => "SuccessCriteriaMet",
            End::Failure => "FailureTarget",
        }
    }

    /// The condition that says that it is over.
    pub fn terminal(self) -> &'static str {
        match self {
            End::Success => "Complete",
            End::Failure => "Failed",
        }
    }
}

impl Verdict {
    /// A verdict that isn't written yet.
    pub fn new(end: End, reason: &str, message: impl Into<String>) -> Verdict {
        Verdict { end, reason: reason.to_owned(), message: message.into(), is_written: false }
    }

    /// The verdict that the status holds.
    pub fn written(job: &Job) -> Option<Verdict> {
        [End::Success, End::Failure].into_iter().find_map(|end| {
            let condition = find(conditions(job), end.interim()).filter(|condition| condition.status == "True")?;
            let (reason, message) = (condition.reason.clone(), condition.message.clone());
            let (reason, message) = (reason.unwrap_or_default(), message.unwrap_or_default());
            Some(Verdict { end, reason, message, is_written: true })
        })
    }
}

/// Whether all is over, and how.
pub fn finished(job: &Job) -> Option<&JobCondition> {
    let is_end = |condition: &&JobCondition| matches!(condition.type_.as_str(), "Complete" | "Failed");
    conditions(job).iter().filter(is_end).find(|condition| condition.status == "True")
}

/// Puts a condition in its place and says whether anything changed. One that is not there needn't be made to say that it does
/// not hold.
pub fn ensure(
    list: &mut Option<Vec<JobCondition>>,
    kind: &str,
    holds: bool,
    reason: &str,
    message: &str,
    now: &Time,
) -> bool {
    let status = if holds { "True" } else { "False" };
    let new = JobCondition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_probe_time: Some(now.clone()),
        last_transition_time: Some(now.clone()),
    };
    match list.iter_mut().flatten().find(|condition| condition.type_ == kind) {
        Some(old) if old.status == new.status && old.reason == new.reason && old.message == new.message => false,
        Some(old) => {
            *old = new;
            true
        }
        None if holds => {
            list.get_or_insert_default().push(new);
            true
        }
        None => false,
    }
}

fn conditions(job: &Job) -> &[JobCondition] {
    job.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default()
}

fn find<'a>(conditions: &'a [JobCondition], kind: &str) -> Option<&'a JobCondition> {
    conditions.iter().find(|condition| condition.type_ == kind)
}
