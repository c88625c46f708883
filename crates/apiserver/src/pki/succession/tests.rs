//! Who trusts whom before, during and after an authority follows another, wherever it is cut off.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use rustls::pki_types::{ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;

use super::super::tests::{Folder, LOCAL, day};
use super::super::{Pki, SERVER_VALID};
use super::*;

fn roots(trusted: &str) -> Arc<rustls::RootCertStore> {
    let mut roots = rustls::RootCertStore::empty();
    for ca in CertificateDer::pem_slice_iter(trusted.as_bytes()) {
        roots.add(ca.unwrap()).unwrap();
    }
    Arc::new(roots)
}

fn unix(now: SystemTime) -> UnixTime {
    UnixTime::since_unix_epoch(now.duration_since(UNIX_EPOCH).unwrap())
}

/// Whether a client that trusts these certificates accepts what a server shows, at a time.
fn trusts(trusted: &str, pki: &Pki, now: SystemTime) -> bool {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = rustls::client::WebPkiServerVerifier::builder_with_provider(roots(trusted), provider);
    let (chain, _) = pki.serving().unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let verifier = verifier.build().unwrap();
    rustls::client::danger::ServerCertVerifier::verify_server_cert(
        &*verifier,
        &chain[0],
        &chain[1..],
        &name,
        &[],
        unix(now),
    )
    .is_ok()
}

/// Whether a server accepts the administrator's certificate of another time.
fn accepts(server: &Pki, client: &Pki, now: SystemTime) -> bool {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(roots(server.ca_pem()), provider).build().unwrap();
    let certificate = CertificateDer::from_pem_slice(client.admin.certificate.as_bytes()).unwrap();
    verifier.verify_client_cert(&certificate, &[], unix(now)).is_ok()
}

fn prepare(folder: &Folder, count: u32) -> Pki {
    Pki::prepare(&folder.path(), LOCAL, None, day(count)).unwrap()
}

#[test]
fn old_clients_keep_working_until_the_authority_before_is_retired() {
    let folder = Folder::new();
    let first = prepare(&folder, 0);
    succeed(&folder.path(), day(1)).unwrap();
    let second = first.renewed(day(1)).unwrap().expect("it is another");
    assert!(first.server != second.server && first.admin != second.admin, "they are signed anew");
    assert_eq!(second.ca_pem().matches("BEGIN CERTIFICATE").count(), 2);
    assert!(second.ca_pem().ends_with(first.ca_pem()), "what was trusted still is");
    assert!(trusts(first.ca_pem(), &second, day(2)), "with what clients had before");
    assert!(trusts(second.ca_pem(), &second, day(2)), "with what they have now");
    assert!(accepts(&second, &first, day(2)) && accepts(&second, &second, day(2)));
    assert!(second.tls().is_ok());
    assert!(second.renewed(day(2)).unwrap().is_none(), "nothing has changed since");

    assert!(retire(&folder.path(), day(2)).unwrap());
    assert!(!retire(&folder.path(), day(2)).unwrap(), "only once");
    let third = second.renewed(day(2)).unwrap().expect("it is another");
    assert!(third.server == second.server && third.admin == second.admin);
    assert_eq!(third.ca_pem().matches("BEGIN CERTIFICATE").count(), 1);
    assert!(!trusts(first.ca_pem(), &third, day(2)), "the one before counts no more");
    assert!(trusts(third.ca_pem(), &third, day(2)));
    assert!(!accepts(&third, &first, day(2)) && accepts(&third, &second, day(2)));
    assert!(trusts(second.ca_pem(), &third, day(2)), "who took both in between needs nothing new");
}

/// Every prefix of what is written, and of what is removed, is a folder that a server starts from and whose clients find it.
#[test]
fn wherever_it_is_cut_off_a_server_starts_and_its_clients_find_it() {
    for written in 0..=3 {
        let folder = Folder::new();
        let before = prepare(&folder, 0);
        for (name, text) in successor(&folder.path(), day(1)).unwrap().iter().take(written) {
            file::replace(&folder.path().join(name), text.as_bytes()).unwrap();
        }
        let after = prepare(&folder, 1);
        assert!(trusts(before.ca_pem(), &after, day(1)) && accepts(&after, &before, day(1)), "{written} written");
        assert_eq!(after.ca_pem().matches("BEGIN CERTIFICATE").count(), if written == 3 { 2 } else { 1 });
        assert_eq!(certificates(&folder.path()).unwrap().len(), if written == 3 { 4 } else { 3 });
        match succeed(&folder.path(), day(2)) {
            Ok(()) => assert!(written < 3, "it is done again"),
            Err(error) => assert!(written == 3 && matches!(error, SuccessionError::Unfinished), "{error}"),
        }
    }
    for removed in 0..=2 {
        let folder = Folder::new();
        prepare(&folder, 0);
        succeed(&folder.path(), day(1)).unwrap();
        let before = prepare(&folder, 1);
        for name in [BRIDGE, FORMER].iter().take(removed) {
            fs::remove_file(folder.path().join(name)).unwrap();
        }
        let after = prepare(&folder, 1);
        assert!(trusts(before.ca_pem(), &after, day(1)) && accepts(&after, &before, day(1)), "{removed} removed");
        assert_eq!(retire(&folder.path(), day(1)).unwrap(), removed < 2);
        assert_eq!(prepare(&folder, 1).ca_pem().matches("BEGIN CERTIFICATE").count(), 1);
    }
}

#[test]
fn nobody_is_left_behind_by_one_rotation_after_another_or_by_an_early_end() {
    let folder = Folder::new();
    assert!(matches!(succeed(&folder.path(), day(0)), Err(SuccessionError::Nobody)));
    assert!(!folder.path().exists(), "nothing was made");
    prepare(&folder, 0);
    assert!(!retire(&folder.path(), day(0)).unwrap(), "there is nobody to retire");
    succeed(&folder.path(), day(1)).unwrap();
    assert!(matches!(retire(&folder.path(), day(1)), Err(SuccessionError::Unused)), "no server has used it");
    assert!(matches!(succeed(&folder.path(), day(1)), Err(SuccessionError::Unfinished)));
    let held = lock(&folder.path()).unwrap();
    assert!(matches!(retire(&folder.path(), day(1)), Err(SuccessionError::Busy)));
    drop(held);
    prepare(&folder, 1);
    assert!(retire(&folder.path(), day(1)).unwrap());
    succeed(&folder.path(), day(2)).unwrap();
}

#[test]
fn what_was_changed_is_settled_once_a_server_has_told_so() {
    let folder = Folder::new();
    let first = prepare(&folder, 0);
    assert!(!settled(&folder.path(), day(0)).unwrap());
    first.tell().unwrap();
    assert!(settled(&folder.path(), day(0)).unwrap());
    succeed(&folder.path(), day(1)).unwrap();
    assert!(!settled(&folder.path(), day(1)).unwrap());
    let second = first.renewed(day(1)).unwrap().unwrap();
    assert!(!settled(&folder.path(), day(1)).unwrap(), "it may not be in use yet");
    second.tell().unwrap();
    assert!(settled(&folder.path(), day(1)).unwrap());
    retire(&folder.path(), day(1)).unwrap();
    assert!(!settled(&folder.path(), day(1)).unwrap());
    second.renewed(day(1)).unwrap().unwrap().tell().unwrap();
    assert!(settled(&folder.path(), day(1)).unwrap());
}

#[test]
fn certificates_are_renewed_while_a_server_runs() {
    let folder = Folder::new();
    let first = prepare(&folder, 0);
    assert!(first.renewed(day(334)).unwrap().is_none());
    let second = first.renewed(day(335)).unwrap().expect("the administrator's ends in a month");
    assert!(first.server == second.server && first.admin != second.admin && first.ca_pem() == second.ca_pem());
    assert!(accepts(&second, &second, day(600)));
    let third = second.renewed(day(770)).unwrap().expect("the server's ends in a month");
    assert!(second.server != third.server);
    assert!(trusts(first.ca_pem(), &third, day(770) + SERVER_VALID - Duration::from_secs(1)));
    // A restart takes what the run before has made.
    assert!(prepare(&folder, 770).server == third.server);
}

/// Servers that share a folder have different addresses, and the file of one is no reason for another to change.
#[test]
fn servers_that_share_a_folder_leave_each_other_alone() {
    let folder = Folder::new();
    let at = |ip: [u8; 4]| Pki::prepare(&folder.path(), ip.into(), None, day(0)).unwrap();
    let (one, two) = (at([192, 168, 1, 7]), at([192, 168, 1, 8]));
    assert!(one.renewed(day(1)).unwrap().is_none() && two.renewed(day(1)).unwrap().is_none());
    succeed(&folder.path(), day(1)).unwrap();
    let (one, two) = (one.renewed(day(1)).unwrap().unwrap(), two.renewed(day(1)).unwrap().unwrap());
    assert!(one.server != two.server && one.admin == two.admin);
    assert!(one.renewed(day(2)).unwrap().is_none() && two.renewed(day(2)).unwrap().is_none());
}

#[test]
fn a_server_whose_authority_is_taken_away_keeps_what_it_has_and_says_so() {
    let folder = Folder::new();
    let pki = prepare(&folder, 0);
    fs::remove_file(folder.path().join(AUTHORITY)).unwrap();
    assert!(matches!(pki.renewed(day(1)), Err(PkiError::Io(..))));
    fs::write(folder.path().join(AUTHORITY), "half of").unwrap();
    assert!(matches!(pki.renewed(day(1)), Err(PkiError::Damaged(..))));
    assert!(!folder.path().join(BRIDGE).exists());
}

#[test]
fn all_that_is_written_belongs_to_its_owner_only_and_is_listed() {
    let folder = Folder::new();
    prepare(&folder, 0);
    succeed(&folder.path(), day(1)).unwrap();
    prepare(&folder, 1).tell().unwrap();
    let mut names = Vec::new();
    for entry in fs::read_dir(folder.path()).unwrap().map(Result::unwrap) {
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{:?}", entry.path());
        names.push(entry.file_name().into_string().unwrap());
    }
    names.sort();
    assert_eq!(
        names,
        [
            "admin.pem",
            "ca-bridge.pem",
            "ca-former.pem",
            "ca.crt",
            "ca.pem",
            "server.pem",
            "service-account.pem",
            "succession.lock"
        ]
    );
    assert!(!fs::read_to_string(folder.path().join(TRUSTED)).unwrap().contains("PRIVATE"));
    assert!(!fs::read_to_string(folder.path().join(FORMER)).unwrap().contains("PRIVATE"), "its key is gone");
    let listed = certificates(&folder.path()).unwrap();
    let listed: Vec<_> = listed.iter().map(|one| (one.role.to_string(), &*one.name, &*one.issuer)).collect();
    let now = day(1).duration_since(UNIX_EPOCH).unwrap().as_secs();
    let new = format!("setpoint-ca-{now}");
    let row = |role: &str, name: &'static str| (role.to_owned(), name, new.as_str());
    assert_eq!(
        listed,
        [
            ("authority".to_owned(), new.as_str(), new.as_str()),
            ("former authority".to_owned(), "setpoint-ca", "setpoint-ca"),
            row("server", "setpoint-apiserver"),
            row("administrator", "kubernetes-admin"),
        ]
    );
}
