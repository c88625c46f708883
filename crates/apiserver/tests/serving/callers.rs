//! Who a request is taken to be from.

use std::time::{Duration, SystemTime};

use rcgen::DnType;

use crate::client::{Alpn, Client, get, http2};
use crate::server::{Authority, Pair, Server, client_params};

const HOUR: Duration = Duration::from_secs(3600);

async fn check(certificate: impl FnOnce(&Server) -> Option<Pair>, expected: &str) {
    let server = Server::start().await;
    let certificate = certificate(&server);
    for alpn in [Alpn::Http1, Alpn::Http2] {
        let client = Client::new(&server).alpn(alpn);
        let client = match &certificate {
            Some((certificate, key)) => client.certificate((certificate.clone(), key.clone_key())),
            None => client,
        };
        let answer = client.get("/who").await;
        assert!(answer.contains(&format!(" {expected} from ")), "{answer}");
    }
    server.stop().await;
}

#[tokio::test]
async fn without_a_certificate_a_request_is_from_nobody() {
    check(|_| None, "nobody").await;
}

#[tokio::test]
async fn a_certificate_of_our_authority_names_user_and_groups() {
    check(|server| Some(server.authority.client()), "fleet-bot of drivers uid \"\"").await;
}

#[tokio::test]
async fn a_subject_may_name_a_uid() {
    let mut params = client_params();
    params.distinguished_name.push(DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 57683, 2]), "u-1");
    check(|server| Some(server.authority.issue(&params)), "fleet-bot of drivers uid \"u-1\"").await;
}

#[tokio::test]
async fn a_certificate_of_another_authority_is_refused_and_the_request_still_answered() {
    check(|_| Some(Authority::new().client()), "refused").await;
}

#[tokio::test]
async fn an_expired_certificate_is_refused() {
    check(|server| Some(server.authority.client_until(SystemTime::now() - HOUR)), "refused").await;
}

#[tokio::test]
async fn a_certificate_whose_time_has_not_come_is_refused() {
    let mut params = client_params();
    params.not_before = rcgen::date_time_ymd(4000, 1, 1);
    params.not_after = rcgen::date_time_ymd(4001, 1, 1);
    check(|server| Some(server.authority.issue(&params)), "refused").await;
}

#[tokio::test]
async fn a_certificate_for_servers_only_is_refused() {
    let mut params = client_params();
    params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
    check(|server| Some(server.authority.issue(&params)), "refused").await;
}

#[tokio::test]
async fn a_certificate_without_a_common_name_is_nobody() {
    let mut params = client_params();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "drivers");
    check(|server| Some(server.authority.issue(&params)), "nobody").await;
}

#[tokio::test]
async fn a_certificate_that_expires_during_a_connection_stops_counting() {
    let server = Server::start().await;
    let certificate = server.authority.client_until(SystemTime::now() + HOUR);
    let mut sender = http2(Client::new(&server).certificate(certificate).connect().await.unwrap()).await;
    let before = get(&mut sender, "/who").await.unwrap();
    assert!(before.contains(" fleet-bot of drivers "), "{before}");
    tokio::time::pause();
    tokio::time::advance(2 * HOUR).await;
    tokio::time::resume();
    let after = get(&mut sender, "/who").await.unwrap();
    assert!(after.contains(" refused "), "{after}");
    drop(sender);
    server.stop().await;
}

/// An authority follows another: both count for a while, then only the second.
#[tokio::test]
async fn who_is_connected_with_a_certificate_that_counts_no_more_is_cut_off() {
    let server = Server::start().await;
    let next = Authority::new();
    let renew = |authorities: Vec<_>| {
        let (certificate, key) = next.issue(&rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap());
        server.tls.renew(vec![certificate], key, authorities).unwrap();
    };
    let old = || Client::new(&server).certificate(server.authority.client());
    let new = || Client::new(&server).trusting(&next).certificate(next.client());
    let mut connected = http2(old().connect().await.unwrap()).await;
    let mut nobody = http2(Client::new(&server).connect().await.unwrap()).await;
    assert!(get(&mut connected, "/who").await.unwrap().contains(" fleet-bot "));

    renew(vec![server.authority.certificate.clone(), next.certificate.clone()]);
    assert!(get(&mut connected, "/who").await.unwrap().contains(" fleet-bot "), "both count");
    assert!(old().trusting(&next).get("/who").await.contains(" fleet-bot "), "on new connections too");
    assert!(new().get("/who").await.contains(" fleet-bot "));
    assert!(old().connect().await.is_err(), "who knows the old one only does not know the new certificate");

    renew(vec![next.certificate.clone()]);
    assert!(get(&mut connected, "/who").await.is_err(), "the connection is closed");
    assert!(get(&mut nobody, "/who").await.unwrap().contains(" nobody "), "others go on");
    assert!(old().trusting(&next).get("/who").await.contains(" refused "));
    assert!(new().get("/who").await.contains(" fleet-bot "));
    drop((connected, nobody));
    server.stop().await;
}
