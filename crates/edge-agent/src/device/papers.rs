//! The vehicle's certificate and its key: asked for with a token, and replaced before their time is over.
//!
//! The next key is kept beside the present one before it is asked for, and the next certificate beside the present one before either
//! takes its place. So a kill at any moment leaves a key with its certificate, or what it takes to go on.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use jiff::Timestamp;
use setpoint_fleet_protocol::enrolment::{ASK_BYTES_MAX, Ask, ENROL_PATH, Granted, Proof, RENEW_PATH, Token};
use setpoint_fleet_protocol::{Party, VehicleName};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::Config;
use super::expiry::validity;
use super::link::drawn;
use super::request::OwnKey;
use super::wire::{Wire, at};
use crate::slots::replace;

/// How long the hub may take for an answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// The first pause after a request that failed, doubled with each in a row, and the longest.
const PAUSE: Duration = Duration::from_secs(2);
const PAUSE_MAX: Duration = Duration::from_secs(600);

/// From when and until when a certificate counts, and what time it is, all in seconds since 1970 by the hub's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    pub from: i64,
    pub until: i64,
    pub now: i64,
}

impl Validity {
    /// How long to wait before the next one is asked for: until two thirds of its time are over.
    fn rest(self) -> Duration {
        let due = self.from.saturating_add(self.until.saturating_sub(self.from) / 3 * 2);
        Duration::from_secs(u64::try_from(due.saturating_sub(self.now)).unwrap_or(0))
    }
}

/// Where they are.
#[derive(Clone)]
pub struct Papers {
    party: Party,
    certificate: PathBuf,
    key: PathBuf,
    token: Option<PathBuf>,
}

impl Papers {
    /// Those of a configuration. An exchange that was broken off is ended.
    pub fn of(config: &Config) -> Result<Papers, String> {
        let vehicle = VehicleName::parse(&config.vehicle).ok_or("the vehicle has no name")?;
        let papers = Papers {
            party: Party::Vehicle(vehicle),
            certificate: config.certificate.clone(),
            key: config.key.clone(),
            token: config.token.clone(),
        };
        papers.take_over().map_err(|error| format!("can't use {}: {error}", papers.certificate.display()))?;
        Ok(papers)
    }

    /// Whether there is none yet, and a token to ask with.
    pub fn are_to_come(&self) -> bool {
        !self.certificate.exists() && self.token.as_ref().is_some_and(|file| file.exists())
    }

    /// Asks hub after hub for a first certificate until one gives it out.
    pub async fn enrol(&self, config: &Config) -> Result<(), String> {
        let wire = Wire::without_certificate(config)?;
        for turn in 0usize.. {
            let hub = &config.hubs[turn % config.hubs.len()];
            match self.enrol_at(&wire, hub).await {
                Ok(_) => break,
                Err(why) => eprintln!("{hub} gives out no certificate: {why}"),
            }
            sleep(drawn(pause(turn))).await;
        }
        Ok(())
    }

    async fn enrol_at(&self, wire: &Wire, hub: &str) -> Result<Granted, String> {
        let file = self.token.as_ref().ok_or("there is no token")?;
        let text = fs::read_to_string(file).map_err(|error| format!("can't use {}: {error}", file.display()))?;
        let token = Token::parse(&text).ok_or_else(|| format!("{} holds no token", file.display()))?;
        let granted = self.exchange(wire, hub, ENROL_PATH, |request| Ok(token.vouch(request))).await?;
        // It has served, and serves nobody else.
        let _ = fs::remove_file(file);
        Ok(granted)
    }

    /// Asks for the next certificate whenever it is time, for as long as the agent lives.
    pub async fn keep(self, wire: Wire, hub: watch::Receiver<String>, mut told: watch::Receiver<Option<Validity>>) {
        let mut failures = 0;
        // Who was off for long may have one that lets it meet no hub any more: that it knows itself.
        let mut due = self.present().map(|validity| Instant::now() + validity.rest());
        loop {
            tokio::select! {
                changed = told.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    let validity = *told.borrow_and_update();
                    due = validity.map(|validity| Instant::now() + validity.rest());
                    continue;
                }
                () = until(due) => {}
            }
            let hub = hub.borrow().clone();
            due = match self.renew_at(&wire, &hub).await {
                Ok(granted) => {
                    println!("the certificate was renewed");
                    failures = 0;
                    let now = granted.now;
                    Some(Instant::now() + Validity { from: granted.from, until: granted.until, now }.rest())
                }
                Err(why) => {
                    eprintln!("the certificate is not renewed: {why}");
                    failures += 1;
                    Some(Instant::now() + PAUSE + drawn(pause(failures)))
                }
            };
        }
    }

    /// What the present certificate says of itself, by the vehicle's own clock.
    fn present(&self) -> Option<Validity> {
        let (from, until) = validity(&fs::read_to_string(&self.certificate).ok()?)?;
        Some(Validity { from, until, now: Timestamp::now().as_second() })
    }

    /// The next certificate, for the key of the present one. One that counts no more lets nobody in: then the hub is met without it, and a
    /// token that somebody has put there since is tried first.
    async fn renew_at(&self, wire: &Wire, hub: &str) -> Result<Granted, String> {
        let has_expired = self.present().is_some_and(|present| present.now > present.until);
        let anonymous = if has_expired { Some(wire.anonymous()?) } else { None };
        let by_token = match &anonymous {
            Some(anonymous) if self.token.as_ref().is_some_and(|file| file.exists()) => {
                Some(self.enrol_at(anonymous, hub).await)
            }
            _ => None,
        };
        let granted = match (by_token, &anonymous) {
            (Some(Ok(granted)), _) => granted,
            (Some(Err(why)), Some(anonymous)) => {
                let by_key = self.vouched_by_key(anonymous, hub, ENROL_PATH).await;
                by_key.map_err(|other| format!("by its token: {why}; by its key: {other}"))?
            }
            (_, Some(anonymous)) => self.vouched_by_key(anonymous, hub, ENROL_PATH).await?,
            (_, None) => self.vouched_by_key(wire, hub, RENEW_PATH).await?,
        };
        wire.renew()?;
        Ok(granted)
    }

    async fn vouched_by_key(&self, wire: &Wire, hub: &str, path: &str) -> Result<Granted, String> {
        let present = OwnKey::read(&fs::read_to_string(&self.key).map_err(|error| error.to_string())?)?;
        self.exchange(wire, hub, path, |request| present.vouch(request)).await
    }

    /// Asks for a certificate of the next key, and makes both the present ones.
    async fn exchange(
        &self,
        wire: &Wire,
        hub: &str,
        path: &str,
        vouch: impl FnOnce(&str) -> Result<Proof, String>,
    ) -> Result<Granted, String> {
        let key = self.next_key()?;
        let request = key.request(&self.party)?;
        let ask = Ask { proof: vouch(&request)?.text(), request };
        let granted = timeout(ANSWER_LIMIT, post(wire, hub, path, &ask)).await;
        let granted = granted.map_err(|_| "the hub took too long to answer".to_owned())??;
        if granted.certificate.is_empty() {
            return Err("nobody has decided yet".into());
        }
        let kept = replace(&next(&self.certificate), granted.certificate.as_bytes()).and_then(|()| self.take_over());
        kept.map_err(|error| format!("the certificate can't be kept: {error}"))?;
        Ok(granted)
    }

    /// The key that is asked for: the same until there is a certificate for it.
    fn next_key(&self) -> Result<OwnKey, String> {
        let file = next(&self.key);
        if let Some(key) = fs::read_to_string(&file).ok().and_then(|text| OwnKey::read(&text).ok()) {
            return Ok(key);
        }
        let key = OwnKey::draw()?;
        keep_private(&file, key.pem()).map_err(|error| format!("the key can't be kept: {error}"))?;
        Ok(key)
    }

    /// Makes the next key and certificate the present ones, if both are there.
    fn take_over(&self) -> io::Result<()> {
        let (key, certificate) = (next(&self.key), next(&self.certificate));
        if !certificate.exists() {
            return Ok(());
        }
        if key.exists() {
            fs::rename(&key, &self.key)?;
        }
        fs::rename(&certificate, &self.certificate)?;
        let folder = self.certificate.parent().unwrap_or(Path::new("."));
        fs::File::open(folder)?.sync_all()
    }
}

async fn post(wire: &Wire, hub: &str, path: &str, ask: &Ask) -> Result<Granted, String> {
    let told = |error: &dyn std::fmt::Display| error.to_string();
    let url = at(hub, path).map_err(|error| told(&error))?;
    let body = serde_json::to_vec(ask).map_err(|error| told(&error))?;
    let mut request = Request::new(Full::new(Bytes::from(body)));
    *request.method_mut() = Method::POST;
    let answer = wire.request(&url, request).await.map_err(|error| told(&error))?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), ASK_BYTES_MAX).collect().await.map_err(|error| told(&error))?;
    let body = body.to_bytes();
    if status != StatusCode::OK {
        return Err(format!("{status}: {}", String::from_utf8_lossy(&body)));
    }
    serde_json::from_slice(&body).map_err(|error| told(&error))
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}

fn pause(failures: usize) -> Duration {
    PAUSE.saturating_mul(1 << failures.min(9)).min(PAUSE_MAX)
}

/// What is to take the place of a file.
fn next(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".next");
    path.with_file_name(name)
}

fn keep_private(path: &Path, text: &str) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use jiff::tz::TimeZone;
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};
    use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
    use tokio::net::TcpListener;
    use tokio::sync::mpsc;

    use super::*;

    #[test]
    fn the_next_certificate_is_asked_for_at_two_thirds_of_the_time() {
        for (from, until, now, seconds) in [(0, 90, 0, 60), (0, 90, 59, 1), (0, 90, 60, 0), (0, 90, 200, 0)] {
            assert_eq!(Validity { from, until, now }.rest().as_secs(), seconds, "at {now}");
        }
    }

    #[test]
    fn an_exchange_that_was_broken_off_leaves_a_key_with_its_certificate() {
        let files = ["key", "key.next", "certificate", "certificate.next"];
        let (old, new) = (("old key", "old certificate"), ("new key", "new certificate"));
        // What is there when the power fails, in the order of the exchange; and what is there after the next start.
        for (there, expected) in [
            ([Some(old.0), None, Some(old.1), None], old),
            ([Some(old.0), Some(new.0), Some(old.1), None], old),
            ([Some(old.0), Some(new.0), Some(old.1), Some(new.1)], new),
            ([Some(new.0), None, Some(old.1), Some(new.1)], new),
            ([Some(new.0), None, Some(new.1), None], new),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let at = |name: &str| folder.path().join(name);
            for (name, text) in files.iter().zip(there) {
                if let Some(text) = text {
                    fs::write(at(name), text).unwrap();
                }
            }
            let vehicle = VehicleName::new("default", "v-1").unwrap();
            let papers =
                Papers { party: Party::Vehicle(vehicle), certificate: at("certificate"), key: at("key"), token: None };
            papers.take_over().unwrap();
            let read = |name: &str| fs::read_to_string(at(name)).unwrap();
            assert_eq!((read("key").as_str(), read("certificate").as_str()), expected, "{there:?}");
            assert!(!at("certificate.next").exists());
        }
    }

    /// A certificate and its key, that counts from and until these days from now.
    fn made(from: i64, until: i64) -> (String, String) {
        let day = |days: i64| {
            let date = (Timestamp::now() + SignedDuration::from_hours(24 * days)).to_zoned(TimeZone::UTC).date();
            date_time_ymd(date.year().into(), date.month().unsigned_abs(), date.day().unsigned_abs())
        };
        let key = OwnKey::draw().unwrap();
        let mut params = CertificateParams::default();
        (params.not_before, params.not_after) = (day(from), day(until));
        let pair = KeyPair::from_pem(key.pem()).unwrap();
        (params.self_signed(&pair).unwrap().pem(), key.pem().to_owned())
    }

    /// A hub that answers requests one after another with what it is given; what it was asked, with the path.
    async fn hub(answers: Vec<(&'static str, String)>) -> (String, mpsc::Receiver<(String, Ask)>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (asked_in, asked) = mpsc::channel(16);
        tokio::spawn(async move {
            for (status, answer) in answers {
                let (stream, _) = listener.accept().await.unwrap();
                let mut stream = BufReader::new(stream);
                let (mut line, mut length, mut path) = (String::new(), 0, String::new());
                while stream.read_line(&mut line).await.unwrap() > 2 {
                    path = if path.is_empty() { line.split(' ').nth(1).unwrap().to_owned() } else { path };
                    let field = line.to_ascii_lowercase();
                    length = field.strip_prefix("content-length: ").map_or(length, |text| text.trim().parse().unwrap());
                    line.clear();
                }
                let mut body = vec![0; length];
                stream.read_exact(&mut body).await.unwrap();
                let head =
                    format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", answer.len());
                stream.write_all(format!("{head}{answer}").as_bytes()).await.unwrap();
                stream.shutdown().await.unwrap();
                asked_in.send((path, serde_json::from_slice(&body).unwrap())).await.unwrap();
            }
        });
        (url, asked)
    }

    /// The clock stands still but for what waits on it: the pauses of a vehicle that is refused are over at once.
    #[tokio::test(start_paused = true)]
    async fn a_vehicle_whose_certificate_has_expired_asks_by_its_token_and_by_its_key_until_it_is_let_in() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let (certificate, key) = made(-40, -10);
        for (name, text) in
            [("certificate", &certificate), ("key", &key), ("ca", &String::new()), ("token", &"1".repeat(64))]
        {
            fs::write(at(name), text).unwrap();
        }
        let party = Party::Vehicle(VehicleName::new("default", "v-1").unwrap());
        let papers = Papers { party, certificate: at("certificate"), key: at("key"), token: Some(at("token")) };
        let now = Timestamp::now().as_second();
        // What the certificate is doesn't matter to who keeps it; until when it counts is told beside it.
        let granted = |text: &str| {
            serde_json::to_string(&Granted { certificate: text.into(), from: now, until: now + 900, now }).unwrap()
        };
        let (url, mut asked) = hub(vec![
            ("403 Forbidden", "its token has expired".into()),
            ("403 Forbidden", "it was away for too long".into()),
            ("403 Forbidden", "its token has expired".into()),
            ("200 OK", granted(&made(0, 30).0)),
            ("200 OK", granted("after ten minutes")),
        ])
        .await;
        let (wire, hub) = (Wire::plain(at("ca")), watch::channel(url).1);
        let (told_in, told) = watch::channel(None);
        let keeping = tokio::spawn(papers.keep(wire.clone(), hub, told));
        let mut found = Vec::new();
        while found.len() < 5 {
            let (path, ask) = asked.recv().await.unwrap();
            let proof = Proof::parse(&ask.proof).unwrap();
            found.push((path, matches!(proof, Proof::Token(_))));
        }
        let enrol = |by_token: bool| (ENROL_PATH.to_owned(), by_token);
        // The next one is asked for as always, with the certificate and at two thirds of its time.
        let expected = [enrol(true), enrol(false), enrol(true), enrol(false), (RENEW_PATH.to_owned(), false)];
        assert_eq!(found, expected);
        assert_ne!(fs::read_to_string(at("key")).unwrap(), key, "the key is the one before");
        drop(told_in);
        keeping.await.unwrap();
    }
}
