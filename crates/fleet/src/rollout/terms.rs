//! The spec of a rollout, read: selectors, shares, spans and windows that can be asked.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use k8s_openapi::jiff::SignedDuration;
use setpoint_api::labels::{self, Selector};
use setpoint_fleet_protocol::Window;

use crate::kinds::{RolloutSpec, Step};

/// A number, or a part of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// So many.
    Number(usize),
    /// So many of a hundred.
    Percent(usize),
}

impl Share {
    /// Reads `7` or `7%`.
    pub fn parse(text: &IntOrString) -> Result<Share, String> {
        let read = match text {
            IntOrString::Int(number) => usize::try_from(*number).ok().map(Share::Number),
            IntOrString::String(text) => {
                text.strip_suffix('%').and_then(|number| number.parse().ok()).filter(|n| *n <= 100).map(Share::Percent)
            }
        };
        read.ok_or_else(|| format!("{text:?} is neither a number nor a share"))
    }

    /// How many that is of a total, rounded up: a share of some is never nothing.
    #[must_use]
    pub fn of(self, total: usize) -> usize {
        match self {
            Share::Number(number) => number,
            Share::Percent(percent) => (total * percent).div_ceil(100),
        }
    }
}

/// One step.
#[derive(Clone, Debug)]
pub struct Stair {
    /// Which vehicles; none for all.
    pub selector: Option<Selector>,
    /// How many of them, counted from the beginning; none for all.
    pub limit: Option<Share>,
    /// How long they must be well before the next step.
    pub soak: SignedDuration,
    /// Whether somebody has to agree before it begins.
    pub approve: bool,
}

/// What a rollout asks for.
#[derive(Clone, Debug)]
pub struct Terms {
    /// Which vehicles.
    pub selector: Selector,
    /// The steps; the last one has all that are left.
    pub steps: Vec<Stair>,
    /// The share, in percent, that has to confirm.
    pub threshold: usize,
    /// How many must have come to an end before shares count.
    pub min_samples: usize,
    /// How many may fail.
    pub max_failures: Share,
    /// How many with the same value of a label may be without a confirmed firmware at once.
    pub group: Option<(String, Share)>,
    /// How many may be without a confirmed firmware at once.
    pub concurrent: Share,
    /// When vehicles may be told.
    pub window: Option<Window>,
    /// How long those that are offline are waited for.
    pub patience: SignedDuration,
    /// How long a step may take.
    pub step_deadline: Option<SignedDuration>,
    /// The version that a rollback leads to; without one, to what each vehicle had before.
    pub rollback_to: Option<String>,
}

impl Terms {
    /// Reads a spec, or says what can't be read.
    pub fn read(spec: &RolloutSpec) -> Result<Terms, String> {
        let mut steps = spec.steps.iter().map(stair).collect::<Result<Vec<_>, _>>()?;
        let is_all =
            |stair: &Stair| stair.selector.is_none() && matches!(stair.limit, None | Some(Share::Percent(100)));
        if !steps.last().is_some_and(is_all) {
            steps.push(Stair { selector: None, limit: None, soak: SignedDuration::ZERO, approve: false });
        }
        let group = spec.max_unavailable.as_ref();
        Ok(Terms {
            selector: selector(spec.selector.as_ref())?.unwrap_or(Selector::everything()),
            steps,
            threshold: usize::try_from(spec.success_threshold).unwrap_or_default().min(100),
            min_samples: usize::try_from(spec.min_samples).unwrap_or_default(),
            max_failures: Share::parse(&spec.max_failures)?,
            group: group
                .map(|group| Ok::<_, String>((group.group_by.clone(), Share::parse(&group.value)?)))
                .transpose()?,
            concurrent: Share::parse(&spec.max_concurrent)?,
            window: spec.window.as_deref().map(Window::parse).transpose().map_err(|error| error.to_string())?,
            patience: span(&spec.offline_ttl)?,
            step_deadline: spec.step_deadline.as_deref().map(span).transpose()?,
            rollback_to: spec.rollback_to.clone(),
        })
    }
}

fn stair(step: &Step) -> Result<Stair, String> {
    Ok(Stair {
        selector: selector(step.selector.as_ref())?,
        limit: step.limit.as_ref().map(Share::parse).transpose()?,
        soak: step.soak.as_deref().map_or(Ok(SignedDuration::ZERO), span)?,
        approve: step.approve,
    })
}

/// A selector; an absent one is none.
pub fn selector(selector: Option<&LabelSelector>) -> Result<Option<Selector>, String> {
    let Some(selector) = selector else { return Ok(None) };
    let expressions = selector.match_expressions.iter().flatten().map(|expression| labels::LabelSelectorRequirement {
        key: expression.key.clone(),
        operator: expression.operator.clone(),
        values: expression.values.clone().unwrap_or_default(),
    });
    let match_labels = selector.match_labels.clone().unwrap_or_default();
    let read = labels::LabelSelector { match_labels, match_expressions: expressions.collect() }.selector();
    read.map(Some).map_err(|error| error.to_string())
}

fn span(text: &str) -> Result<SignedDuration, String> {
    setpoint_api::time::parse_duration(text).map(SignedDuration::from_nanos).map_err(|error| error.to_string())
}
