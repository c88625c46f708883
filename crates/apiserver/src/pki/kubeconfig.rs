//! The file by which kubectl and every other client finds the server and proves who it is.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::certificate::Issued;

/// A kubeconfig of one context, `setpoint`, with everything embedded, so that the file alone is enough.
pub(super) fn render(url: &str, ca: &str, user: &str, credentials: &Issued) -> String {
    let ca = STANDARD.encode(ca);
    let certificate = STANDARD.encode(&credentials.certificate);
    let key = STANDARD.encode(&credentials.key);
    format!(
        "apiVersion: v1
kind: Config
clusters:
- name: setpoint
  cluster:
    server: {url}
    certificate-authority-data: {ca}
users:
- name: {user}
  user:
    client-certificate-data: {certificate}
    client-key-data: {key}
contexts:
- name: setpoint
  context:
    cluster: setpoint
    user: {user}
current-context: setpoint
"
    )
}
