//! What a request for a certificate asks for, and whether a signer may grant it.

use std::collections::BTreeSet;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer;

/// For clients of the API server.
pub const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
/// For nodes as clients of the API server.
pub const NODE_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// For what nodes serve.
pub const NODE_SERVING: &str = "kubernetes.io/kubelet-serving";
/// For vehicles as clients of the hub and of the API server.
pub const VEHICLE: &str = "fleet.setpoint.dev/vehicle";
/// For gateways, which speak for vehicles.
pub const GATEWAY: &str = "fleet.setpoint.dev/gateway";
/// For what the hub serves.
pub const HUB: &str = "fleet.setpoint.dev/hub";
/// For whatever is asked; nobody promises that it is trusted anywhere.
pub const UNKNOWN: &str = "kubernetes.io/legacy-unknown";

/// What is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    pub common_name: String,
    pub organizations: Vec<String>,
    names: usize,
    addresses: usize,
    emails: usize,
    uris: usize,
    usages: BTreeSet<String>,
}

impl Asked {
    /// Reads a request.
    pub fn read(request: &CertificateSigningRequest) -> Result<Asked, String> {
        let pem = &request.spec.request.0[..];
        let (pem, _) = Pem::read(std::io::Cursor::new(pem)).map_err(|error| error.to_string())?;
        let (_, parsed) = X509CertificationRequest::from_der(&pem.contents).map_err(|error| error.to_string())?;
        let subject = &parsed.certification_request_info.subject;
        let text = |name: &x509_parser::x509::AttributeTypeAndValue<'_>| name.as_str().unwrap_or_default().to_owned();
        let mut asked = Asked {
            common_name: subject.iter_common_name().last().map(text).unwrap_or_default(),
            organizations: subject.iter_organization().map(text).collect(),
            usages: request.spec.usages.iter().flatten().cloned().collect(),
            ..Asked::default()
        };
        for extension in parsed.requested_extensions().into_iter().flatten() {
            let ParsedExtension::SubjectAlternativeName(names) = extension else { continue };
            for name in &names.general_names {
                match name {
                    GeneralName::DNSName(_) => asked.names += 1,
                    GeneralName::IPAddress(_) => asked.addresses += 1,
                    GeneralName::RFC822Name(_) => asked.emails += 1,
                    GeneralName::URI(_) => asked.uris += 1,
                    _ => {}
                }
            }
        }
        Ok(asked)
    }

    /// Why a signer must not grant this; in the words that users know. Other signers aren't ours to judge.
    pub fn refusal(&self, signer: &str) -> Option<String> {
        match signer {
            NODE_CLIENT => self.not_for_node_client(),
            NODE_SERVING => self.not_for_node_serving(),
            CLIENT => self.not_for_client(),
            VEHICLE => self.not_for_fleet("system:vehicle:", "system:vehicles"),
            GATEWAY => self.not_for_fleet("system:vehicle-gateway:", "system:vehicle-gateways"),
            HUB => self.not_for_hub(),
            _ => None,
        }
    }

    fn not_for_node_client(&self) -> Option<String> {
        let why = if self.organizations != ["system:nodes"] {
            "subject organization is not system:nodes"
        } else if self.names > 0 {
            "DNS subjectAltNames are not allowed"
        } else if self.emails > 0 {
            "Email subjectAltNames are not allowed"
        } else if self.addresses > 0 {
            "IP subjectAltNames are not allowed"
        } else if self.uris > 0 {
            "URI subjectAltNames are not allowed"
        } else if !self.common_name.starts_with("system:node:") {
            "subject common name does not begin with system:node:"
        } else if !self.has_usages("client auth") {
            "usages did not match [client auth digital signature key encipherment]"
        } else {
            return None;
        };
        Some(why.to_owned())
    }

    fn not_for_node_serving(&self) -> Option<String> {
        let why = if self.organizations != ["system:nodes"] {
            "subject organization is not system:nodes"
        } else if self.names == 0 && self.addresses == 0 {
            "DNS or IP subjectAltName is required"
        } else if self.emails > 0 {
            "Email subjectAltNames are not allowed"
        } else if self.uris > 0 {
            "URI subjectAltNames are not allowed"
        } else if !self.has_usages("server auth") {
            "usages did not match [digital signature key encipherment server auth]"
        } else if !self.common_name.starts_with("system:node:") {
            "subject common name does not begin with system:node:"
        } else {
            return None;
        };
        Some(why.to_owned())
    }

    fn not_for_client(&self) -> Option<String> {
        let known = ["digital signature", "key encipherment", "client auth"];
        if let Some(other) = self.usages.iter().find(|usage| !known.contains(&usage.as_str())) {
            return Some(format!("invalid usage for client certificate: {other}"));
        }
        let has_it = self.usages.contains("client auth");
        (!has_it).then(|| "missing required usage for client certificate: client auth".to_owned())
    }

    fn not_for_fleet(&self, name: &str, organization: &str) -> Option<String> {
        let why = if self.organizations != [organization] {
            format!("subject organization is not {organization}")
        } else if !self.common_name.starts_with(name) {
            format!("subject common name does not begin with {name}")
        } else if self.names + self.emails + self.addresses + self.uris > 0 {
            "subjectAltNames are not allowed".to_owned()
        } else if !self.has_usages("client auth") {
            "usages did not match [client auth digital signature]".to_owned()
        } else {
            return None;
        };
        Some(why)
    }

    fn not_for_hub(&self) -> Option<String> {
        let why = if self.organizations != ["system:fleet-hubs"] {
            "subject organization is not system:fleet-hubs"
        } else if self.names == 0 && self.addresses == 0 {
            "DNS or IP subjectAltName is required"
        } else if !self.has_usages("server auth") {
            "usages did not match [digital signature server auth]"
        } else {
            return None;
        };
        Some(why.to_owned())
    }

    /// Whether the usages are a signature, this, and perhaps encipherment of keys.
    fn has_usages(&self, purpose: &str) -> bool {
        let rest: Vec<_> = self.usages.iter().filter(|usage| *usage != "key encipherment").collect();
        let mut wanted = ["digital signature", purpose];
        wanted.sort_unstable();
        rest == wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(usages: &[&str]) -> Asked {
        Asked {
            common_name: "system:node:n".to_owned(),
            organizations: vec!["system:nodes".to_owned()],
            usages: usages.iter().map(|usage| (*usage).to_owned()).collect(),
            ..Asked::default()
        }
    }

    #[test]
    fn signers_of_the_fleet_grant_what_they_are_for() {
        let client = ["client auth", "digital signature"];
        let of = |name: &str, organization: &str, usages: &[&str]| Asked {
            common_name: name.to_owned(),
            organizations: vec![organization.to_owned()],
            ..node(usages)
        };
        let vehicle = || of("system:vehicle:fleet:v-1", "system:vehicles", &client);
        let hub = || of("hub", "system:fleet-hubs", &["digital signature", "server auth"]);
        for (signer, asked, is_granted) in [
            (VEHICLE, vehicle(), true),
            (VEHICLE, of("system:vehicle:fleet:v-1", "system:masters", &client), false),
            (VEHICLE, of("kubernetes-admin", "system:vehicles", &client), false),
            (VEHICLE, Asked { names: 1, ..vehicle() }, false),
            (VEHICLE, of("system:vehicle:fleet:v-1", "system:vehicles", &["server auth", "digital signature"]), false),
            (GATEWAY, vehicle(), false),
            (GATEWAY, of("system:vehicle-gateway:fleet:depot", "system:vehicle-gateways", &client), true),
            (HUB, Asked { addresses: 1, ..hub() }, true),
            (HUB, hub(), false),
            (HUB, Asked { addresses: 1, ..of("hub", "system:fleet-hubs", &client) }, false),
        ] {
            assert_eq!(asked.refusal(signer).is_none(), is_granted, "{signer} {asked:?}");
        }
    }

    #[test]
    fn signers_grant_what_they_are_for() {
        let client = ["client auth", "digital signature", "key encipherment"];
        let server = ["digital signature", "server auth"];
        for (signer, asked, why) in [
            (NODE_CLIENT, node(&client), None),
            (NODE_CLIENT, node(&client[..2]), None),
            (NODE_CLIENT, node(&server), Some("usages did not match [client auth digital signature key encipherment]")),
            (NODE_CLIENT, Asked { names: 1, ..node(&client) }, Some("DNS subjectAltNames are not allowed")),
            (
                NODE_CLIENT,
                Asked { organizations: vec![], ..node(&client) },
                Some("subject organization is not system:nodes"),
            ),
            (
                NODE_CLIENT,
                Asked { common_name: "x".to_owned(), ..node(&client) },
                Some("subject common name does not begin with system:node:"),
            ),
            (NODE_SERVING, node(&server), Some("DNS or IP subjectAltName is required")),
            (NODE_SERVING, Asked { addresses: 1, ..node(&server) }, None),
            (
                NODE_SERVING,
                Asked { addresses: 1, ..node(&client) },
                Some("usages did not match [digital signature key encipherment server auth]"),
            ),
            (CLIENT, node(&client), None),
            (CLIENT, node(&["digital signature"]), Some("missing required usage for client certificate: client auth")),
            (CLIENT, node(&["client auth", "server auth"]), Some("invalid usage for client certificate: server auth")),
            (UNKNOWN, node(&[]), None),
        ] {
            assert_eq!(asked.refusal(signer).as_deref(), why, "{signer} {asked:?}");
        }
    }
}
