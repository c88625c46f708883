//! Heap profiles by jemalloc, which samples one allocation in half a megabyte and knows at any time which of them live.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use jemalloc_pprof::{JemallocProfCtl, PROF_CTL};
pub use tikv_jemallocator::Jemalloc as ProfiledAllocator;
use tokio::sync::OwnedMutexGuard;

/// What to do where nothing can be told.
const NOT_BUILT: &str = "heap profiles are off; start the program with _RJEM_MALLOC_CONF=prof:true";
const NOT_SAMPLING: &str = "the program samples no allocations; ask for those of a while with ?seconds=30, or start it with \
                            _RJEM_MALLOC_CONF=prof:true,prof_active:true";

/// Takes a profile of what lives on the heap, for [`Profiles::with_heap`](super::Profiles::with_heap): gzipped `profile.proto`,
/// as `go tool pprof` reads it, with the names of functions in it.
///
/// It needs jemalloc as the program's allocator:
///
/// ```no_run
/// use setpoint_runtime::probes::{ProfiledAllocator, Profiles, heap_profile};
///
/// #[global_allocator]
/// static ALLOCATOR: ProfiledAllocator = ProfiledAllocator;
///
/// let profiles = Profiles::default().with_heap(heap_profile);
/// ```
///
/// A program that samples from its start (`_RJEM_MALLOC_CONF=prof:true,prof_active:true`) tells all that lives. One that is only
/// able to (built with `JEMALLOC_SYS_WITH_MALLOC_CONF=prof:true,prof_active:false`, as `.cargo/config.toml` of this repository
/// says, or started with `_RJEM_MALLOC_CONF=prof:true,prof_active:false`) samples for `time`, and tells what was allocated in it
/// and still lives: until it is asked, it costs nothing.
pub fn heap_profile(time: Option<Duration>) -> BoxFuture<'static, Result<Vec<u8>, String>> {
    Box::pin(async move {
        let control = PROF_CTL.as_ref().ok_or(NOT_BUILT)?;
        let control = Arc::clone(control).try_lock_owned().map_err(|_| "another heap profile is being taken")?;
        let taking = Taking { is_always: control.activated(), control };
        let mut taking = match (taking.is_always, time) {
            (true, _) => taking,
            (false, None) => return Err(NOT_SAMPLING.to_owned()),
            (false, Some(time)) => taking.for_a_while(time).await?,
        };
        // Walking the heap takes a while: not on a thread that runs tasks.
        let taken = tokio::task::spawn_blocking(move || taking.control.dump_pprof());
        let taken = taken.await.map_err(|error| error.to_string())?;
        taken.map_err(|error| format!("the heap can't be told: {error}"))
    })
}

/// Sampling ends with it, unless it went on before: also if nobody waits for the profile any more.
struct Taking {
    is_always: bool,
    control: OwnedMutexGuard<JemallocProfCtl>,
}

impl Taking {
    async fn for_a_while(mut self, time: Duration) -> Result<Taking, String> {
        self.control.activate().map_err(|error| format!("sampling can't begin: {error}"))?;
        tokio::time::sleep(time).await;
        Ok(self)
    }
}

impl Drop for Taking {
    fn drop(&mut self) {
        if !self.is_always
            && let Err(error) = self.control.deactivate()
        {
            tracing::warn!(%error, "the allocator goes on sampling");
        }
    }
}
