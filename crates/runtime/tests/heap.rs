//! A heap profile of this very process: what lives is in it, by the function that asked for it.
#![cfg(feature = "heap-profile")]

use std::io::Read;
use std::time::Duration;

use setpoint_runtime::probes::{ProfiledAllocator, heap_profile};

#[global_allocator]
static ALLOCATOR: ProfiledAllocator = ProfiledAllocator;

#[inline(never)]
fn hoard_memory() -> Vec<Vec<u8>> {
    (0..64).map(|_| vec![7; 1024 * 1024]).collect()
}

#[tokio::test(start_paused = true)]
async fn what_lives_is_in_the_profile_by_the_function_that_asked_for_it() {
    let off = heap_profile(None).await.unwrap_err();
    assert!(off.starts_with("the program samples no allocations"), "{off}");
    let minute = Some(Duration::from_secs(60));
    let (profile, hoard, refused) = tokio::join!(heap_profile(minute), async { hoard_memory() }, heap_profile(minute));
    assert_eq!(refused.unwrap_err(), "another heap profile is being taken");
    // Gzipped protobuf: its table of strings holds the names of functions as they are.
    let mut strings = Vec::new();
    flate2::read::GzDecoder::new(&profile.unwrap()[..]).read_to_end(&mut strings).unwrap();
    let has = |name: &[u8]| strings.windows(name.len()).any(|bytes| bytes == name);
    assert!(has(b"hoard_memory") && has(b"inuse_space"), "the function is named in the profile");
    drop(hoard);
    assert!(heap_profile(None).await.is_err(), "sampling has ended");
}
