//! How a run can fail, and what follows from it.

use std::fmt;

/// Why a run failed.
///
/// ```
/// use setpoint_runtime::controller::Error;
///
/// /// Nobody but the user can mend a wrong size; a server that is away comes back by itself.
/// fn size(text: &str) -> Result<u32, Error> {
///     text.parse().map_err(|_| Error::terminal(format!("spec.size: {text:?} is no number")))
/// }
/// assert!(matches!(size("many"), Err(Error::Terminal(_))));
/// assert!(matches!(Error::from(kube::Error::LinesCodecMaxLineLengthExceeded), Error::Transient(_)));
/// ```
#[derive(Debug)]
pub enum Error {
    /// May go away by itself: the key is tried again with back-off.
    Transient(Box<dyn std::error::Error + Send + Sync>),
    /// Can't go away before somebody changes something: recorded, not tried again.
    Terminal(Box<dyn std::error::Error + Send + Sync>),
    /// Somebody else wrote first: the key is read and tried again with back-off; that is no error.
    Conflict(Box<dyn std::error::Error + Send + Sync>),
}

impl Error {
    /// A failure that may go away by itself.
    pub fn transient(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Transient(cause.into())
    }

    /// A failure that can't go away by itself.
    pub fn terminal(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Terminal(cause.into())
    }

    /// A lost race.
    pub fn conflict(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Conflict(cause.into())
    }

    fn cause(&self) -> &(dyn std::error::Error + Send + Sync) {
        match self {
            Self::Transient(cause) | Self::Terminal(cause) | Self::Conflict(cause) => &**cause,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.cause(), out)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause().source()
    }
}

/// A write that lost against another is a conflict; everything else that the API says may go away.
impl From<kube::Error> for Error {
    fn from(error: kube::Error) -> Self {
        match &error {
            kube::Error::Api(status) if status.code == 409 && status.reason == "Conflict" => Self::conflict(error),
            _ => Self::transient(error),
        }
    }
}
