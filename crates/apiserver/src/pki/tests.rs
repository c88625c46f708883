//! What the folder of certificates holds, and when it changes.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::UNIX_EPOCH;

use super::*;

const LOCAL: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

/// A day in 2026, so that nothing depends on the day of the test.
fn day(count: u32) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_790_000_000) + DAY * count
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("pki")
    }

    fn start(&self, listen: IpAddr, now: SystemTime) -> Result<[String; 3], PkiError> {
        Pki::prepare(&self.path(), listen, Some("edge-7"), now)?;
        Ok(["ca.pem", "server.pem", "admin.pem"].map(|name| fs::read_to_string(self.path().join(name)).unwrap()))
    }

    /// Which of CA, server and admin certificate differ between two starts.
    fn check_changes(&self, first: (IpAddr, u32), second: (IpAddr, u32), changed: [bool; 3]) {
        let before = self.start(first.0, day(first.1)).unwrap();
        let after = self.start(second.0, day(second.1)).unwrap();
        assert_eq!(std::array::from_fn(|i| before[i] != after[i]), changed);
    }
}

#[test]
fn a_restart_uses_what_is_there() {
    Folder::new().check_changes((LOCAL, 0), (LOCAL, 1), [false, false, false]);
}

#[test]
fn a_certificate_is_kept_until_thirty_days_before_its_end() {
    Folder::new().check_changes((LOCAL, 0), (LOCAL, 334), [false, false, false]);
    Folder::new().check_changes((LOCAL, 0), (LOCAL, 335), [false, false, true]);
    Folder::new().check_changes((LOCAL, 0), (LOCAL, 769), [false, false, true]);
    Folder::new().check_changes((LOCAL, 0), (LOCAL, 770), [false, true, true]);
}

#[test]
fn a_certificate_from_a_later_time_is_made_again() {
    let folder = Folder::new();
    let authority = folder.start(LOCAL, day(0)).unwrap()[0].clone();
    folder.start(LOCAL, day(900)).unwrap();
    let after = folder.start(LOCAL, day(1)).unwrap();
    assert_eq!(after[0], authority);
    assert!(Issued::parse(&after[1]).unwrap().facts().unwrap().is_valid_at(day(1)));
    assert!(Issued::parse(&after[2]).unwrap().facts().unwrap().is_valid_at(day(1)));
}

#[test]
fn listening_on_another_address_renews_only_the_servers_certificate() {
    Folder::new().check_changes((LOCAL, 0), ([192, 168, 1, 7].into(), 0), [false, true, false]);
    Folder::new().check_changes((LOCAL, 0), ([0, 0, 0, 0].into(), 0), [false, false, false]);
}

#[test]
fn another_authority_signs_everything_anew() {
    let folder = Folder::new();
    let before = folder.start(LOCAL, day(0)).unwrap();
    fs::remove_file(folder.path().join("ca.pem")).unwrap();
    let after = folder.start(LOCAL, day(0)).unwrap();
    assert!((0..3).all(|i| before[i] != after[i]));
}

#[test]
fn a_damaged_leaf_is_replaced_and_a_damaged_authority_is_reported() {
    let folder = Folder::new();
    let before = folder.start(LOCAL, day(0)).unwrap();
    fs::write(folder.path().join("server.pem"), &before[1][..before[1].len() / 2]).unwrap();
    let after = folder.start(LOCAL, day(0)).unwrap();
    assert!(Issued::parse(&after[1]).is_ok());
    fs::write(folder.path().join("ca.pem"), &before[0][..before[0].len() / 2]).unwrap();
    assert!(matches!(folder.start(LOCAL, day(0)), Err(PkiError::Damaged(..))));
}

#[test]
fn a_key_of_another_certificate_is_not_taken() {
    let folder = Folder::new();
    let files = folder.start(LOCAL, day(0)).unwrap();
    let other = Issued::parse(&files[2]).unwrap();
    let mixed = format!("{}{}", Issued::parse(&files[1]).unwrap().certificate, other.key);
    assert!(Issued::parse(&mixed).is_err());
}

#[test]
fn an_expired_authority_is_reported() {
    let folder = Folder::new();
    folder.start(LOCAL, day(0)).unwrap();
    assert!(matches!(folder.start(LOCAL, day(3651)), Err(PkiError::NotValidNow(_))));
}

#[test]
fn a_leaf_never_outlives_its_authority() {
    let folder = Folder::new();
    folder.start(LOCAL, day(0)).unwrap();
    let files = folder.start(LOCAL, day(3600)).unwrap();
    assert!(!Issued::parse(&files[2]).unwrap().facts().unwrap().is_valid_at(day(3650)));
}

#[test]
fn only_the_owner_can_read() {
    let folder = Folder::new();
    fs::create_dir(folder.path()).unwrap();
    folder.start(LOCAL, day(0)).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&folder.path()), 0o700);
    let mut names = Vec::new();
    for entry in fs::read_dir(folder.path()).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(mode(&entry.path()), 0o600, "{:?}", entry.path());
        names.push(entry.file_name().into_string().unwrap());
    }
    names.sort();
    assert_eq!(names, ["admin.pem", "ca.pem", "server.pem", "service-account.pem"]);
}

#[test]
fn the_server_is_known_by_every_name_that_clients_use() {
    let folder = Folder::new();
    let files = folder.start([192, 168, 1, 7].into(), day(0)).unwrap();
    let facts = Issued::parse(&files[1]).unwrap().facts().unwrap();
    let names = |facts: &[String]| facts.join(" ");
    assert_eq!(
        names(&facts.names),
        "localhost kubernetes kubernetes.default kubernetes.default.svc kubernetes.default.svc.cluster.local edge-7"
    );
    let addresses: Vec<String> = facts.addresses.iter().map(ToString::to_string).collect();
    assert_eq!(addresses.join(" "), "127.0.0.1 ::1 10.0.0.1 192.168.1.7");
}

#[test]
fn the_kubeconfig_holds_all_that_a_client_needs() {
    use base64::Engine;
    let folder = Folder::new();
    let pki = Pki::prepare(&folder.path(), LOCAL, None, day(0)).unwrap();
    let path = folder.0.path().join("new/admin.kubeconfig");
    pki.write_admin_kubeconfig(&path, "https://127.0.0.1:6443").unwrap();
    pki.write_admin_kubeconfig(&path, "https://127.0.0.1:7443").unwrap();
    let text = fs::read_to_string(&path).unwrap();
    let value = |key: &str| {
        let line = text.lines().find_map(|line| line.trim_start().strip_prefix(key)).unwrap();
        line.trim_start_matches([':', ' ']).to_owned()
    };
    let decoded =
        |key: &str| String::from_utf8(base64::engine::general_purpose::STANDARD.decode(value(key)).unwrap()).unwrap();
    assert_eq!(value("server"), "https://127.0.0.1:7443");
    assert_eq!(value("current-context"), "setpoint");
    assert_eq!(decoded("certificate-authority-data"), pki.ca_pem());
    assert_eq!(decoded("client-certificate-data"), pki.admin.certificate);
    assert_eq!(decoded("client-key-data"), pki.admin.key);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
}

/// Whether a client that trusts these certificates accepts what a server shows, at a time.
fn trusts(trusted: &str, pki: &Pki, now: SystemTime) -> bool {
    use rustls::pki_types::{ServerName, UnixTime};
    let mut roots = rustls::RootCertStore::empty();
    for ca in CertificateDer::pem_slice_iter(trusted.as_bytes()) {
        roots.add(ca.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier =
        rustls::client::WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
    let (chain, _) = pki.serving().unwrap();
    let now = UnixTime::since_unix_epoch(now.duration_since(UNIX_EPOCH).unwrap());
    let name = ServerName::try_from("localhost").unwrap();
    rustls::client::danger::ServerCertVerifier::verify_server_cert(&*verifier, &chain[0], &chain[1..], &name, &[], now)
        .is_ok()
}

#[test]
fn a_new_authority_is_trusted_by_those_who_know_only_the_one_before() {
    let folder = Folder::new();
    let prepare = |count: u32| Pki::prepare(&folder.path(), LOCAL, None, day(count)).unwrap();
    let first = prepare(0);
    Pki::rotate(&folder.path(), day(1)).unwrap();
    let second = prepare(1);
    assert_ne!(first.server.certificate, second.server.certificate, "it is signed anew");
    assert_eq!(second.ca_pem().matches("BEGIN CERTIFICATE").count(), 2);
    assert!(second.ca_pem().ends_with(first.ca_pem()), "what was trusted still is");
    assert!(trusts(first.ca_pem(), &second, day(2)), "with what clients had before");
    assert!(trusts(second.ca_pem(), &second, day(2)), "with what they have now");
    assert!(second.tls().is_ok());

    assert!(Pki::forget_former(&folder.path()).unwrap());
    assert!(!Pki::forget_former(&folder.path()).unwrap(), "only once");
    let third = prepare(2);
    assert_eq!(third.server.certificate, second.server.certificate);
    assert_eq!(third.ca_pem().matches("BEGIN CERTIFICATE").count(), 1);
    assert!(!trusts(first.ca_pem(), &third, day(2)), "the one before counts no more");
    assert!(trusts(third.ca_pem(), &third, day(2)));
}

#[test]
fn a_rotation_that_was_cut_off_leaves_the_authority_as_it_was() {
    let folder = Folder::new();
    let before = Pki::prepare(&folder.path(), LOCAL, None, day(0)).unwrap();
    let authority = fs::read(folder.path().join("ca.pem")).unwrap();
    Pki::rotate(&folder.path(), day(1)).unwrap();
    fs::write(folder.path().join("ca.pem"), authority).unwrap();
    let after = Pki::prepare(&folder.path(), LOCAL, None, day(1)).unwrap();
    assert_eq!((&after.bridge, &after.server.certificate), (&None, &before.server.certificate));
    assert!(trusts(before.ca_pem(), &after, day(1)));
}
