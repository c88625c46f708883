//! What the controller asks of a cloud.

use std::fmt;

use setpoint_runtime::controller::Error;

/// A cloud with machines. All calls come back at once: what takes time goes on after them, and [`Cloud::find`] says how far
/// it is. Each call can be made again without harm; the token says which machine it is about.
pub trait Cloud: Send + Sync + 'static {
    /// The machine of a token.
    fn find(&self, token: &str) -> impl Future<Output = Result<Option<CloudMachine>, CloudError>> + Send;

    /// Begins to make a machine. If there is one of this token already, nothing happens.
    fn create(&self, token: &str, form: &Form) -> impl Future<Output = Result<(), CloudError>> + Send;

    /// Begins to change a machine.
    fn change(&self, token: &str, form: &Form) -> impl Future<Output = Result<(), CloudError>> + Send;

    /// Begins to delete a machine. If there is none, nothing happens.
    fn delete(&self, token: &str) -> impl Future<Output = Result<(), CloudError>> + Send;
}

/// How a machine is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Form {
    /// What it runs.
    pub image: String,
    /// How many cores it has.
    pub cores: u32,
}

/// A machine, as the cloud tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloudMachine {
    /// The cloud's name for it.
    pub id: String,
    /// Where it can be reached, once it runs.
    pub address: Option<String>,
    /// How it is made, or being made.
    pub form: Form,
    /// How far it is.
    pub stage: Stage,
}

/// How far a machine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It is being made or changed.
    Working,
    /// It runs.
    Running,
    /// It could not be made or changed, and never will be.
    Broken,
    /// It is being deleted.
    Deleting,
}

/// Why a call did not work. It may have had its effect all the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloudError(pub String);

impl fmt::Display for CloudError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the cloud: {}", self.0)
    }
}

impl std::error::Error for CloudError {}

/// What a cloud refuses today it may do tomorrow.
impl From<CloudError> for Error {
    fn from(error: CloudError) -> Error {
        Error::transient(error)
    }
}
