//! `setpoint doctor`: what is between here and a working control plane, line by line, each with its fix.

mod cis;

use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use x509_parser::pem::Pem;

use crate::connection::{ConnectionArguments, data_folder};
use crate::failure::{Failure, print};
use crate::get::now;
use crate::output::FormArguments;
use crate::request::{Ask, Server};
use crate::terminal::{coloured, escape, with_progress};

/// Least free space that a data directory should have.
const FREE_BYTES_MIN: u64 = 512 << 20;

/// Clocks may differ by this much before certificates and tokens suffer.
const CLOCK_SECONDS_MAX: i64 = 30;

/// Certificates should last at least this long.
const DAYS_LEFT_MIN: i64 = 14;

/// The files of a data directory that make their reader somebody else.
const SECRET_FILES: [&str; 8] = [
    "admin.kubeconfig",
    "pki/ca.pem",
    "pki/server.pem",
    "pki/admin.pem",
    "pki/service-account.pem",
    "pki/secrets.keys",
    "pki/ca-former.pem",
    "pki/director.key",
];

/// The ports of `setpoint up`.
const PORTS: [u16; 2] = [6443, 7443];

/// The command line.
#[derive(Args, Debug)]
pub struct DoctorArguments {
    /// Which data directory to look at [default: that of `setpoint up`]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Go through the CIS benchmark for an API server instead, row by row; needs the rights of an administrator, changes nothing
    #[arg(long)]
    pub cis: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub form: FormArguments,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub connection: ConnectionArguments,
}

/// One finding: all is well, or what is not and how to mend it.
type Finding = Result<String, (String, String)>;

/// Runs it.
pub async fn run(arguments: &DoctorArguments) -> Result<(), Failure> {
    let folder = arguments.data_dir.clone().or_else(data_folder);
    if arguments.cis {
        return benchmark(arguments, &folders(arguments)).await;
    }
    let mut findings = Vec::new();
    findings.extend(folder.as_deref().map(|folder| ("data directory", data(folder))));
    findings.extend(folder.as_deref().map(|folder| ("disk", disk(folder))));
    findings.push(("ports", ports()));
    match arguments.connection.connect().await {
        Err(failure) => {
            findings.push(("kubeconfig", Err((failure.to_string().replace('\n', ""), "see `setpoint up`".to_owned()))));
        }
        Ok(server) => {
            findings.push(("kubeconfig", Ok(format!("leads to {}", server.url))));
            findings.extend(folder.as_deref().and_then(|folder| Some(("certificate", certificate(folder)?))));
            with_progress("asking the server", ask(&server, &mut findings)).await;
        }
    }
    let printed = arguments.form.print(|| {
        let told = |(what, finding): &(&str, Finding)| match finding {
            Ok(said) => json!({"check": what, "ok": true, "said": said}),
            Err((said, fix)) => json!({"check": what, "ok": false, "said": said, "fix": fix}),
        };
        json!({"findings": findings.iter().map(told).collect::<Vec<_>>()})
    });
    let mut bad = 0;
    for (what, finding) in findings {
        match finding {
            Ok(_) if printed => {}
            Err(_) if printed => bad += 1,
            Ok(said) => print(&format!("{} {what}: {}\n", coloured("✓", 32), escape(&said))),
            Err((said, fix)) => {
                bad += 1;
                print(&format!("{} {what}: {}\n    fix: {fix}\n", coloured("✗", 31), escape(&said)));
            }
        }
    }
    match bad {
        0 => Ok(()),
        1 => {
            Err(Failure::error("1 thing is not as it should be").hint("the line with ✗ says how to mend it").answered())
        }
        many => Err(Failure::error(format!("{many} things are not as they should be"))
            .hint("mend them from the top: what is below may follow from it")
            .answered()),
    }
}

/// Where the data of the server may be that is asked: where it is said to be, or else beside its kubeconfig, or at the usual place.
fn folders(arguments: &DoctorArguments) -> Vec<PathBuf> {
    match &arguments.data_dir {
        Some(folder) => vec![folder.clone()],
        None => {
            let beside = arguments.connection.kubeconfig.as_deref().and_then(|file| file.canonicalize().ok());
            let beside = beside.as_deref().and_then(Path::parent).map(Path::to_path_buf);
            beside.into_iter().chain(data_folder()).collect()
        }
    }
}

async fn benchmark(arguments: &DoctorArguments, folders: &[PathBuf]) -> Result<(), Failure> {
    let rows = with_progress("asking the server", cis::rows(&arguments.connection, folders)).await?;
    if !arguments.form.print(|| cis::value(&rows)) {
        print(&cis::text(&rows));
    }
    match rows.iter().filter(|row| row.state == cis::State::Fail).count() {
        0 => Ok(()),
        1 => Err(Failure::error("1 row fails")
            .hint("docs/security.md tells what is on by default, and what turns it off")
            .answered()),
        many => Err(Failure::error(format!("{many} rows fail"))
            .hint("docs/security.md tells what is on by default, and what turns it off")
            .answered()),
    }
}

fn data(folder: &Path) -> Finding {
    let shown = folder.display();
    if !folder.exists() {
        return Ok(format!("{shown} is not there yet; `setpoint up` makes it"));
    }
    let mode = |path: &Path| std::fs::metadata(path).map(|found| found.permissions().mode() & 0o777);
    for path in SECRET_FILES.map(|name| folder.join(name)) {
        if let Ok(mode) = mode(&path)
            && mode & 0o077 != 0
        {
            let said = format!("{} can be read by others (mode {mode:o})", path.display());
            return Err((said, format!("chmod 600 {}", path.display())));
        }
    }
    let test = folder.join(format!(".doctor-{}", std::process::id()));
    match std::fs::write(&test, b"").and_then(|()| std::fs::remove_file(&test)) {
        Ok(()) => Ok(format!("{shown} can be written")),
        Err(error) => {
            Err((format!("{shown} can't be written: {error}"), "choose another with `--data-dir`".to_owned()))
        }
    }
}

fn disk(folder: &Path) -> Finding {
    let there = folder.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("/"));
    match rustix::fs::statvfs(there) {
        Err(error) => Err((format!("{} can't be looked at: {error}", there.display()), "check the disk".to_owned())),
        Ok(found) => {
            let free = found.f_bavail.saturating_mul(found.f_frsize);
            let said = format!("{} MiB are free at {}", free >> 20, there.display());
            if free >= FREE_BYTES_MIN {
                Ok(said)
            } else {
                Err((said, "make room: a full disk stops writes".to_owned()))
            }
        }
    }
}

fn ports() -> Finding {
    let is_free = |port: &u16| TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], *port))).is_ok();
    let taken: Vec<String> = PORTS.iter().filter(|port| !is_free(port)).map(u16::to_string).collect();
    match (&taken[..], crate::beside::running()) {
        ([], _) => Ok("6443 and 7443 are free".to_owned()),
        (_, Some(url)) => Ok(format!("a setpoint listens at {url}")),
        (taken, None) => Err((
            format!("{} taken by another program", taken.join(" and ")),
            "choose others with `setpoint up --listen` and `--hub-listen`".to_owned(),
        )),
    }
}

/// How long the administrator's certificate lasts.
fn certificate(folder: &Path) -> Option<Finding> {
    let bytes = std::fs::read(folder.join("pki/admin.pem")).ok()?;
    let pem = Pem::iter_from_buffer(&bytes).filter_map(Result::ok).find(|pem| pem.label == "CERTIFICATE")?;
    let certificate = pem.parse_x509().ok()?;
    let days = (certificate.validity().not_after.timestamp() - now()) / 86_400;
    let said = format!("the administrator's lasts for {days} more days");
    Some(if days >= DAYS_LEFT_MIN {
        Ok(said)
    } else {
        Err((said, "see why `setpoint up` does not renew it: its log tells".to_owned()))
    })
}

async fn ask(server: &Server, findings: &mut Vec<(&'static str, Finding)>) {
    let version = match server.get(Ask::get("/version")).await {
        Ok(version) => version,
        Err(trouble) => {
            let words = trouble.words();
            let failure = Failure::from(trouble).to_string();
            let fix = failure.rsplit_once("hint: ").map_or("start it", |(_, hint)| hint).to_owned();
            return findings.push(("server", Err((words, fix))));
        }
    };
    findings.push(("server", Ok(format!("answers as {}", version["gitVersion"].as_str().unwrap_or("?")))));
    findings.push((
        "ready",
        match server.text("/readyz").await {
            Ok((code, _)) if code.is_success() => Ok("yes".to_owned()),
            Ok((_, text)) => Err((text.trim().replace('\n', ", "), "its log tells more".to_owned())),
            Err(trouble) => Err((trouble.words(), "its log tells more".to_owned())),
        },
    ));
    findings.push((
        "who you are",
        match server.ask(whoami()).await {
            Ok((_, answer)) => Ok(answer["status"]["userInfo"]["username"].as_str().unwrap_or("nobody").to_owned()),
            Err(trouble) => Err((trouble.words(), "take the kubeconfig that `setpoint up` writes".to_owned())),
        },
    ));
    if let Ok(seconds) = server.clock().await {
        let apart = (seconds - now()).abs();
        findings.push((
            "clock",
            if apart <= CLOCK_SECONDS_MAX {
                Ok(format!("{apart} s from the server's"))
            } else {
                Err((
                    format!("{apart} s from the server's"),
                    "set the clocks: certificates and tokens depend on them".to_owned(),
                ))
            },
        ));
    }
}

fn whoami() -> Ask<'static> {
    let body = r#"{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}"#;
    Ask {
        method: http::Method::POST,
        body: Some((crate::request::JSON, body.as_bytes().to_vec())),
        ..Ask::get("/apis/authentication.k8s.io/v1/selfsubjectreviews")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_others_can_read_is_told_with_its_fix() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("pki")).unwrap();
        for name in SECRET_FILES {
            let path = folder.path().join(name);
            std::fs::write(&path, b"").unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
            let (said, fix) = data(folder.path()).unwrap_err();
            assert!(said.contains(name) && said.contains("mode 640"), "{said}");
            assert_eq!(fix, format!("chmod 600 {}", path.display()));
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        }
        assert!(data(folder.path()).is_ok());
    }
}
