//! A certificate that was asked for, approved and signed lets its owner in.

mod server;

use futures_util::StreamExt;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::api::{Api, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use rcgen::{CertificateParams, DnType, KeyPair};
use serde_json::json;
use server::Server;

#[tokio::test]
async fn who_is_approved_gets_in_under_the_name_that_was_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start_as(&["up"], folder.path());
    let requests: Api<CertificateSigningRequest> = Api::all(server.client().await);
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "jane");
    params.distinguished_name.push(DnType::OrganizationName, "developers");
    let asked = params.serialize_request(&key).unwrap().pem().unwrap();
    let request = json!({"metadata": {"name": "jane"}, "spec": {
        "request": k8s_openapi::ByteString(asked.into_bytes()),
        "signerName": "kubernetes.io/kube-apiserver-client",
        "usages": ["client auth"],
    }});
    let request = serde_json::from_value(request).unwrap();
    let made = requests.create(&PostParams::default(), &request).await.unwrap();
    let version = made.metadata.resource_version.unwrap();
    let approval = json!({"status": {"conditions": [{"type": "Approved", "status": "True", "reason": "KnowHer"}]}});
    requests.patch_subresource("approval", "jane", &PatchParams::default(), &Patch::Merge(approval)).await.unwrap();

    let mut events = requests.watch(&WatchParams::default().timeout(60), &version).await.unwrap().boxed();
    let certificate = loop {
        let event = events.next().await.expect("a certificate").unwrap();
        let WatchEvent::Modified(request) = event else { continue };
        if let Some(certificate) = request.status.and_then(|status| status.certificate) {
            break certificate;
        }
    };

    let mut kubeconfig = Kubeconfig::read_from(&server.kubeconfig).unwrap();
    let user = kubeconfig.auth_infos[0].auth_info.as_mut().unwrap();
    let text = |bytes: &k8s_openapi::ByteString| json!(bytes).as_str().unwrap().to_owned();
    user.client_certificate_data = Some(text(&certificate));
    user.client_key_data = Some(text(&k8s_openapi::ByteString(key.serialize_pem().into_bytes())).into());
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    let reviews: Api<SelfSubjectReview> = Api::all(Client::try_from(config).unwrap());
    let review = reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await.unwrap();
    let jane = review.status.unwrap().user_info.unwrap();
    assert_eq!(
        (jane.username.as_deref(), jane.groups),
        (Some("jane"), Some(vec!["developers".to_owned(), "system:authenticated".to_owned()]))
    );
}
