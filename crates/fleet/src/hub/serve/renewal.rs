//! The certificate of a hub that runs for longer than it counts.

use std::io::Cursor;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tokio::time::sleep;
use x509_parser::pem::Pem;

use super::Credentials;

/// How often it is looked at: the clock of the machine may have been put forward, or may have stood still.
const LOOK_PAUSE: Duration = Duration::from_secs(3600);

/// The pause after an attempt that failed.
const RETRY_PAUSE: Duration = Duration::from_secs(600);

/// Makes a certificate anew whenever two thirds of its time are over, for as long as somebody uses it. `now` is in seconds since 1970.
pub async fn keep_new(
    made: watch::Sender<Credentials>,
    now: impl Fn() -> i64,
    make: impl Fn() -> BoxFuture<'static, Result<Credentials, String>>,
) {
    while !made.is_closed() {
        let left = left(&made.borrow().certificate, now());
        if !left.is_zero() {
            sleep(left.min(LOOK_PAUSE)).await;
            continue;
        }
        match make().await {
            Ok(credentials) => drop(made.send_replace(credentials)),
            Err(error) => {
                tracing::warn!(error, "can't get a certificate for the hub; it keeps the one that it has");
                sleep(RETRY_PAUSE).await;
            }
        }
    }
}

/// How long it is until two thirds of a certificate's time are over. One that can't be read is looked at later: it is used already.
fn left(certificate: &str, now: i64) -> Duration {
    let Some((from, until)) = validity(certificate) else { return LOOK_PAUSE };
    let due = from.saturating_add(until.saturating_sub(from) / 3 * 2);
    Duration::from_secs(u64::try_from(due.saturating_sub(now)).unwrap_or(0))
}

/// From when and until when the first of some certificates in PEM counts, in seconds since 1970.
pub fn validity(certificate: &str) -> Option<(i64, i64)> {
    let (pem, _) = Pem::read(Cursor::new(certificate.as_bytes())).ok()?;
    let validity = pem.parse_x509().ok()?.validity().clone();
    Some((validity.not_before.timestamp(), validity.not_after.timestamp()))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use rcgen::{CertificateParams, KeyPair, date_time_ymd};
    use tokio::time::Instant;

    use super::*;

    const DAY: i64 = 24 * 3600;

    /// One that counts for all of a month of 30 days.
    fn of_month(month: u8) -> Credentials {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        (params.not_before, params.not_after) = (date_time_ymd(2026, month, 1), date_time_ymd(2026, month + 1, 1));
        let certificate = params.self_signed(&key).unwrap().pem();
        Credentials { certificate, key: key.serialize_pem(), authority: String::new() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_certificate_is_made_anew_before_its_time_is_over_and_failures_are_tried_again() {
        let first = of_month(4);
        let (start, began) = (validity(&first.certificate).unwrap().0, Instant::now());
        let now = || start + i64::try_from(began.elapsed().as_secs()).unwrap();
        let (made, asked) = (watch::Sender::new(first), RefCell::new(Vec::new()));
        let mut seen = made.subscribe();
        let make = || -> BoxFuture<'static, _> {
            asked.borrow_mut().push(now() - start);
            let answer = if asked.borrow().len() < 3 { Err("nobody signs".to_owned()) } else { Ok(of_month(5)) };
            Box::pin(std::future::ready(answer))
        };
        let known = seen.borrow_and_update().certificate.clone();
        tokio::select! {
            () = keep_new(made, now, make) => panic!("it ended"),
            changed = seen.changed() => changed.unwrap(),
        }
        assert_ne!(seen.borrow().certificate, known);
        assert_eq!(*asked.borrow(), [20 * DAY, 20 * DAY + 600, 20 * DAY + 1200]);
    }
}
