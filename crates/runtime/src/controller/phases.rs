//! State machines: one function per phase, and the phase is written down before the next one begins.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::{Action, Context, Error};

type Current<T> = Box<dyn Fn(&T) -> Option<String> + Send + Sync>;
type Step<T> = Box<dyn Fn(Context, Arc<T>) -> BoxFuture<'static, Result<Next, Error>> + Send + Sync>;
type Record<T> = Box<dyn Fn(Context, Arc<T>, &'static str) -> BoxFuture<'static, Result<(), Error>> + Send + Sync>;

/// What a phase wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Stay in this phase.
    Stay(Action),
    /// Go to another phase.
    Go(&'static str),
}

/// A state machine over objects of a type.
///
/// One run does one phase. Going to another phase writes it down, and the event of that write brings the next run: so
/// a crash between any two steps leaves a phase that is done again, never one that is skipped.
///
/// ```
/// use std::sync::Arc;
/// use setpoint_runtime::controller::{Action, Next, Phases};
///
/// struct Machine {
///     phase: Option<String>,
/// }
///
/// let phases = Phases::new("Pending", |machine: &Machine| machine.phase.clone())
///     .phase("Pending", |_, _| async { Ok(Next::Go("Running")) })
///     .phase("Running", |_, _| async { Ok(Next::Stay(Action::done())) })
///     .record(|_context, _machine, _phase| async {
///         // patch the status through the context's client
///         Ok(())
///     });
/// assert_eq!(phases.names().collect::<Vec<_>>(), ["Pending", "Running"]);
/// ```
pub struct Phases<T> {
    first: &'static str,
    current: Current<T>,
    steps: BTreeMap<&'static str, Step<T>>,
    record: Option<Record<T>>,
}

impl<T: Send + Sync + 'static> Phases<T> {
    /// A machine that starts in `first`; `current` reads the phase of an object, if one is written down.
    pub fn new(first: &'static str, current: impl Fn(&T) -> Option<String> + Send + Sync + 'static) -> Self {
        Self { first, current: Box::new(current), steps: BTreeMap::new(), record: None }
    }

    /// What to do in a phase.
    #[must_use]
    pub fn phase<F>(mut self, name: &'static str, step: impl Fn(Context, Arc<T>) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Next, Error>> + Send + 'static,
    {
        self.steps.insert(name, Box::new(move |context, object| Box::pin(step(context, object))));
        self
    }

    /// How to write a phase down.
    #[must_use]
    pub fn record<F>(mut self, record: impl Fn(Context, Arc<T>, &'static str) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<(), Error>> + Send + 'static,
    {
        self.record = Some(Box::new(move |context, object, phase| Box::pin(record(context, object, phase))));
        self
    }

    /// The names of all phases.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.steps.keys().copied()
    }

    /// Does the phase of an object.
    ///
    /// # Errors
    /// What the phase fails with; terminal if there is no function for the phase, or none that writes it down.
    pub async fn run(&self, context: Context, object: Arc<T>) -> Result<Action, Error> {
        let phase = (self.current)(&object).unwrap_or_else(|| self.first.to_owned());
        let Some(step) = self.steps.get(phase.as_str()) else {
            return Err(Error::terminal(format!("there is no phase {phase:?}")));
        };
        match step(context.clone(), object.clone()).await? {
            Next::Stay(action) => Ok(action),
            Next::Go(next) => {
                if !self.steps.contains_key(next) {
                    return Err(Error::terminal(format!(
                        "phase {phase:?} wants to go to {next:?}, which there is not"
                    )));
                }
                let Some(record) = &self.record else {
                    return Err(Error::terminal("nothing writes phases down"));
                };
                record(context, object, next).await?;
                Ok(Action::done())
            }
        }
    }
}
