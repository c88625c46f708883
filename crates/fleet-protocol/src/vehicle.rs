//! Who is at the other end of a connection, as a certificate says it.

use std::fmt;

/// The group of all vehicles.
pub const VEHICLES_GROUP: &str = "system:vehicles";

/// The group of gateways, each of which carries many vehicles over one connection.
pub const GATEWAYS_GROUP: &str = "system:vehicle-gateways";

const VEHICLE: &str = "system:vehicle:";
const GATEWAY: &str = "system:vehicle-gateway:";

/// Longest name and namespace, as Kubernetes bounds them.
const NAME_MAX: usize = 253;

/// A vehicle's namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VehicleName {
    namespace: Box<str>,
    name: Box<str>,
}

impl VehicleName {
    /// From its parts; none if one of them isn't a name.
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Option<VehicleName> {
        (is_name(namespace) && is_name(name)).then(|| VehicleName { namespace: namespace.into(), name: name.into() })
    }

    /// From `namespace/name`.
    #[must_use]
    pub fn parse(text: &str) -> Option<VehicleName> {
        let (namespace, name) = text.split_once('/')?;
        VehicleName::new(namespace, name)
    }

    /// The namespace.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The name within it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The user that this vehicle is to the API server.
    #[must_use]
    pub fn user(&self) -> String {
        format!("{VEHICLE}{}:{}", self.namespace, self.name)
    }
}

impl fmt::Display for VehicleName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.namespace, self.name)
    }
}

/// Who a client certificate is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Party {
    /// One vehicle, and no other.
    Vehicle(VehicleName),
    /// A gateway that speaks for those vehicles of a namespace that are assigned to it.
    Gateway {
        /// The namespace of its vehicles.
        namespace: String,
        /// Its own name.
        name: String,
    },
}

impl Party {
    /// Reads the subject of a certificate: its common name, and its organizations.
    #[must_use]
    pub fn of(common_name: &str, organizations: &[&str]) -> Option<Party> {
        let (rest, group) = match (common_name.strip_prefix(VEHICLE), common_name.strip_prefix(GATEWAY)) {
            (Some(rest), _) => (rest, VEHICLES_GROUP),
            (_, Some(rest)) => (rest, GATEWAYS_GROUP),
            (None, None) => return None,
        };
        let (namespace, name) = rest.split_once(':')?;
        let parsed = VehicleName::new(namespace, name)?;
        if !organizations.contains(&group) {
            return None;
        }
        Some(match group {
            VEHICLES_GROUP => Party::Vehicle(parsed),
            _ => Party::Gateway { namespace: namespace.to_owned(), name: name.to_owned() },
        })
    }

    /// The common name and the organization that its certificate has.
    #[must_use]
    pub fn subject(&self) -> (String, &'static str) {
        match self {
            Party::Vehicle(vehicle) => (vehicle.user(), VEHICLES_GROUP),
            Party::Gateway { namespace, name } => (format!("{GATEWAY}{namespace}:{name}"), GATEWAYS_GROUP),
        }
    }
}

/// Letters, digits, `-` and `.`: what Kubernetes takes as a name of these.
fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= NAME_MAX
        && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_names_one_party_or_none() {
        let vehicle = Party::Vehicle(VehicleName::new("fleet", "v-1").unwrap());
        let gateway = Party::Gateway { namespace: "fleet".into(), name: "depot".into() };
        for party in [&vehicle, &gateway] {
            let (name, group) = party.subject();
            assert_eq!(Party::of(&name, &[group]).as_ref(), Some(party));
        }
        for (name, groups) in [
            ("system:vehicle:fleet:v-1", &["system:masters"][..]),
            ("system:vehicle:fleet:v-1", &[GATEWAYS_GROUP]),
            ("system:vehicle-gateway:fleet:depot", &[VEHICLES_GROUP]),
            ("system:vehicle:fleet", &[VEHICLES_GROUP]),
            ("system:vehicle:fleet:a:b", &[VEHICLES_GROUP]),
            ("system:vehicle:fleet:../x", &[VEHICLES_GROUP]),
            ("system:vehicle::x", &[VEHICLES_GROUP]),
            ("system:node:a", &[VEHICLES_GROUP]),
        ] {
            assert_eq!(Party::of(name, groups), None, "{name} {groups:?}");
        }
    }
}
