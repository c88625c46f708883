//! CPU profiles by sampling this process.

use std::time::Duration;

use futures_util::future::BoxFuture;
use pprof::ProfilerGuardBuilder;
use pprof::protos::Message;

use super::profile::CpuFormat;

/// Samples per second: a prime, so that it doesn't run in step with timers.
const FREQUENCY: i32 = 97;

/// Where unwinding from a signal handler may deadlock.
const NOT_SAMPLED: [&str; 4] = ["libc", "libgcc", "pthread", "vdso"];

/// Takes a profile of the whole process, for [`Profiles::with_cpu`](super::Profiles::with_cpu). One at a time: a second is
/// refused while the first is taken.
pub fn cpu_profile(time: Duration, format: CpuFormat) -> BoxFuture<'static, Result<Vec<u8>, String>> {
    Box::pin(async move {
        let builder = ProfilerGuardBuilder::default().frequency(FREQUENCY).blocklist(&NOT_SAMPLED);
        let guard = builder.build().map_err(|error| format!("sampling can't begin: {error}"))?;
        tokio::time::sleep(time).await;
        // Finding the names of functions takes a second or more: not on a thread that runs tasks.
        let written = tokio::task::spawn_blocking(move || {
            let report = guard.report().build().map_err(|error| error.to_string())?;
            let mut bytes = Vec::new();
            match format {
                CpuFormat::Protobuf => {
                    let profile = report.pprof().map_err(|error| error.to_string())?;
                    profile.encode(&mut bytes).map_err(|error| error.to_string())?;
                }
                CpuFormat::Flamegraph => report.flamegraph(&mut bytes).map_err(|error| error.to_string())?,
            }
            Ok(bytes)
        });
        written.await.map_err(|error| error.to_string())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keeps the processor busy until it is told to end.
    fn burn(until: &std::sync::atomic::AtomicBool) -> u64 {
        let mut number = 1_u64;
        while !until.load(std::sync::atomic::Ordering::Relaxed) {
            number = std::hint::black_box(number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
        number
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_runs_is_seen_and_only_one_profile_is_taken_at_a_time() {
        let done = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let stop = std::sync::Arc::clone(&done);
        let busy = tokio::task::spawn_blocking(move || burn(&stop));
        let second = Duration::from_secs(1);
        let (picture, refused) =
            tokio::join!(cpu_profile(second, CpuFormat::Flamegraph), cpu_profile(second, CpuFormat::Protobuf));
        let proto = cpu_profile(second, CpuFormat::Protobuf).await.unwrap();
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        busy.await.unwrap();
        let picture = String::from_utf8(picture.unwrap()).unwrap();
        assert!(picture.contains("<svg") && picture.contains("burn"), "the function is named in the picture");
        assert!(proto.windows(4).any(|bytes| bytes == b"burn"), "the function is named in the profile");
        assert!(refused.unwrap_err().starts_with("sampling can't begin: "));
    }
}
