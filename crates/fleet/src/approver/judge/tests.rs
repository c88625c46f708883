//! What vouches for a request and what doesn't.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use rcgen::{CertificateParams, DnType, KeyPair};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
use setpoint_fleet_protocol::enrolment::{Token, message};

use super::*;
use crate::kinds::AccessToken;

const NOW: &str = "2026-06-01T12:00:00Z";

/// A moment; certificates count for 30 days.
fn at(now: &str) -> Moment {
    Moment { now: now.parse().unwrap(), life: SignedDuration::from_hours(24 * 30) }
}

fn request(key: &KeyPair, name: &str, group: &str) -> String {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.distinguished_name.push(DnType::OrganizationName, group);
    params.serialize_request(key).unwrap().pem().unwrap()
}

fn asked(key: &KeyPair) -> Asked {
    Asked::read(request(key, "system:vehicle:default:v-1", "system:vehicles").as_bytes()).unwrap()
}

fn token(digit: &str) -> Token {
    Token::parse(&digit.repeat(64)).unwrap()
}

fn with_token(token: &Token, expires: &str) -> Access {
    let token = AccessToken { key: token.key(), expires: Time(expires.parse().unwrap()) };
    Access { token: Some(token), ..Access::default() }
}

fn by_key(key: &KeyPair, asked: &Asked) -> Proof {
    let rng = SystemRandom::new();
    let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &key.serialize_der(), &rng).unwrap();
    Proof::Key(pair.sign(&rng, &message(&asked.request)).unwrap().as_ref().to_vec())
}

#[test]
fn a_token_lets_one_key_in_and_the_same_one_again() {
    let (token, first, second) = (token("1"), KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let (first, second) = (asked(&first), asked(&second));
    let access = with_token(&token, "2026-06-02T00:00:00Z");
    let Verdict::GrantWith(used) = judge(&access, &first, &token.vouch(&first.request), at(NOW)) else {
        panic!("a token that is good is refused")
    };
    assert_eq!((&used.keys, &used.used_token), (&vec![first.key.clone()], &Some(token.key())));
    assert_eq!(judge(&used, &first, &token.vouch(&first.request), at(NOW)), Verdict::Grant);
    let refused = judge(&used, &second, &token.vouch(&second.request), at(NOW));
    assert_eq!(refused, Verdict::Refuse("default/v-1: its token was used already".into()));
    // Another token is another chance, and ends what the first one let in.
    let again = self::token("2");
    let renewed = Access { token: with_token(&again, "2026-06-02T00:00:00Z").token, ..used };
    let Verdict::GrantWith(now_in) = judge(&renewed, &second, &again.vouch(&second.request), at(NOW)) else {
        panic!("a second token is refused")
    };
    assert_eq!(now_in.keys, [second.key]);
}

#[test]
fn the_key_before_vouches_for_the_next_and_stays_until_the_one_after() {
    let keys: Vec<KeyPair> = (0..3).map(|_| KeyPair::generate().unwrap()).collect();
    let all: Vec<Asked> = keys.iter().map(asked).collect();
    let mut access = Access { keys: vec![all[0].key.clone()], ..Access::default() };
    for next in 1..3 {
        let Verdict::GrantWith(granted) = judge(&access, &all[next], &by_key(&keys[next - 1], &all[next]), at(NOW))
        else {
            panic!("the key before is refused")
        };
        assert_eq!(granted.keys, [all[next].key.clone(), all[next - 1].key.clone()]);
        access = granted;
    }
    assert_eq!(judge(&access, &all[2], &by_key(&keys[1], &all[2]), at(NOW)), Verdict::Grant);
    let refused = judge(&access, &all[1], &by_key(&keys[0], &all[1]), at(NOW));
    assert_eq!(refused, Verdict::Refuse("default/v-1: no key that counts vouches for it".into()));
}

#[test]
fn all_of_these_are_refused() {
    let (own, other) = (token("1"), token("2"));
    let (key, thief) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let asked = asked(&key);
    let good = with_token(&own, "2026-06-02T00:00:00Z");
    let vouched = own.vouch(&asked.request);
    let known = Access { keys: vec!["04".repeat(65)], ..Access::default() };
    for (what, access, proof, why) in [
        ("no token", Access::default(), vouched.clone(), "there is no token for it"),
        ("another token", good.clone(), other.vouch(&asked.request), "this is not its token"),
        ("a token for another request", good.clone(), own.vouch("something else"), "this is not its token"),
        ("too late", with_token(&own, NOW), vouched.clone(), "its token has expired"),
        ("revoked", Access { revoked: true, ..good.clone() }, vouched.clone(), "its access is revoked"),
        ("a key nobody knows", good.clone(), by_key(&thief, &asked), "no key that counts vouches for it"),
        ("a key of somebody else", known.clone(), by_key(&thief, &asked), "no key that counts vouches for it"),
        ("its own new key", known, by_key(&key, &asked), "no key that counts vouches for it"),
    ] {
        let refused = judge(&access, &asked, &proof, at(NOW));
        assert_eq!(refused, Verdict::Refuse(format!("default/v-1: {why}")), "{what}");
    }
}

#[test]
fn requests_that_name_no_vehicle_or_are_not_signed_by_their_key_are_refused() {
    let key = KeyPair::generate().unwrap();
    for (name, group) in [
        ("system:vehicle:default:v-1", "system:masters"),
        ("kubernetes-admin", "system:vehicles"),
        ("system:vehicle-gateway:default:depot", "system:vehicle-gateways"),
        ("system:vehicle:default", "system:vehicles"),
    ] {
        assert_eq!(
            Asked::read(request(&key, name, group).as_bytes()),
            Err(format!("{name:?} is no vehicle")),
            "{name} {group}"
        );
    }
    let good = request(&key, "system:vehicle:default:v-1", "system:vehicles");
    assert!(Asked::read(good.as_bytes()).is_ok());
    let cut = &good.as_bytes()[..good.len() / 2];
    assert!(Asked::read(cut).unwrap_err().starts_with("the request can't be read"));
    // A later letter of the text is in the signature.
    let at = good.trim_end().rfind("\n-----END").unwrap() - 12;
    let mut tampered = good.into_bytes();
    tampered[at] = if tampered[at] == b'A' { b'B' } else { b'A' };
    assert!(Asked::read(&tampered).is_err());
}

#[test]
fn a_vehicle_that_was_away_comes_back_by_its_key_for_as_long_as_its_spec_says() {
    let keys: Vec<KeyPair> = (0..2).map(|_| KeyPair::generate().unwrap()).collect();
    let (old, new) = (asked(&keys[0]), asked(&keys[1]));
    let proof = by_key(&keys[0], &new);
    let until = |expires: &str, within: Option<&str>| Access {
        keys: vec![old.key.clone()],
        keys_until: Some(Time(expires.parse().unwrap())),
        return_within: within.map(str::to_owned),
        ..Access::default()
    };
    // The certificate expired a day ago; 90 days ago; 90 days and a second ago; a day ago where none may return; long ago where all may.
    for (expires, within, is_back) in [
        ("2026-05-31T12:00:00Z", None, true),
        ("2026-03-03T12:00:01Z", None, true),
        ("2026-03-03T12:00:00Z", None, false),
        ("2026-05-31T12:00:00Z", Some("0s"), false),
        ("2026-05-31T12:00:00Z", Some("24h"), false),
        ("2026-05-31T12:00:00Z", Some("25h"), true),
        ("2020-01-01T00:00:00Z", Some("87600h"), true),
        // Before that nobody has to be let return.
        ("2026-06-01T12:00:01Z", Some("0s"), true),
    ] {
        let verdict = judge(&until(expires, within), &new, &proof, at(NOW));
        match &verdict {
            Verdict::GrantWith(access) => {
                assert!(is_back, "{expires} {within:?}: {verdict:?}");
                assert_eq!(access.keys, [new.key.clone(), old.key.clone()]);
                assert_eq!(access.keys_until, Some(Time("2026-07-01T12:00:00Z".parse().unwrap())));
            }
            Verdict::Refuse(why) => {
                assert!(!is_back && why.contains("needs a token now"), "{expires} {within:?}: {why}")
            }
            Verdict::Grant => panic!("{expires} {within:?}: what counts is not written"),
        }
    }
    let revoked = Access { revoked: true, ..until("2026-05-31T12:00:00Z", None) };
    assert_eq!(judge(&revoked, &new, &proof, at(NOW)), Verdict::Refuse("default/v-1: its access is revoked".into()));
    // An answer that got lost is given again, and what is given then counts for longer.
    let Verdict::GrantWith(first) = judge(&until(NOW, None), &new, &proof, at(NOW)) else { panic!("it is refused") };
    assert_eq!(judge(&first, &new, &proof, at(NOW)), Verdict::Grant);
    let Verdict::GrantWith(second) = judge(&first, &new, &proof, at("2026-06-20T12:00:00Z")) else {
        panic!("it is refused")
    };
    assert_eq!(second.keys_until, Some(Time("2026-07-20T12:00:00Z".parse().unwrap())));
}
