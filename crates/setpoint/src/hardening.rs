//! What a process that lasts gives up before it starts anything: it holds keys and secrets.

use rustix::process::{Resource, Rlimit, setrlimit};

use crate::failure::Failure;

/// Leaves no memory on the disk after a crash, and gains no rights by running another program. To be called before there is a second
/// thread: both are passed on, but only to threads that come later.
pub fn harden() -> Result<(), Failure> {
    let unable = |error| Failure::new("can't give up rights", error);
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) }).map_err(unable)?;
    rustix::thread::set_no_new_privs(true).map_err(unable)
}
