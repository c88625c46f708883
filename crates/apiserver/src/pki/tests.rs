//! What the folder of certificates holds, and when it changes.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::UNIX_EPOCH;

use super::*;

pub(super) const LOCAL: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

/// A day in 2026, so that nothing depends on the day of the test.
pub(super) fn day(count: u32) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_790_000_000) + DAY * count
}

pub(super) struct Folder(tempfile::TempDir);

impl Folder {
    pub(super) fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    pub(super) fn path(&self) -> PathBuf {
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
