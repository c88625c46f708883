//! Facts about names, taken from Kubernetes' own rules.

use super::*;

fn check(rule: fn(&str) -> Complaints, good: &[&str], bad: &[&str]) {
    for value in good {
        assert_eq!(rule(value), Vec::<String>::new(), "{value:?} should be good");
    }
    for value in bad {
        assert!(!rule(value).is_empty(), "{value:?} should be bad");
    }
}

#[test]
fn dns_names() {
    let (label, long_label) = ("a".repeat(63), "a".repeat(64));
    let long_subdomain = format!("{}.{}", "a".repeat(250), "b".repeat(4));
    check(dns1123_label, &["a", "0", "a-b", "1-2", &label], &["", "A", "-a", "a-", "a.b", "a_b", "é", &long_label]);
    check(
        dns1123_subdomain,
        &["a", "a.b", "1.2", "a-b.c"],
        &["", ".", "a.", ".a", "a..b", "a.-b", "A.b", &long_subdomain],
    );
    check(dns1123_subdomain_with_underscore, &["a", "_a._b", "a_b.c"], &["", "__a", "_", "a_", "a._-b"]);
    check(dns1123_subdomain_caseless, &["A.b", "a"], &["", "A_b"]);
    check(wildcard_dns1123_subdomain, &["*.a", "*.a.b"], &["*", "*.", "a.b", "*.*.a", "*a.b"]);
    check(dns1035_label, &["a", "a-1"], &["", "1", "1a", "-a", "a-", "a.b"]);
}

#[test]
fn keys_and_values() {
    check(qualified_name, &["a", "A.b_c-d", "x.y/Z", "1/2"], &["", "a/", "/a", "a/b/c", "-a", "X.y/a", "a b"]);
    check(label_value, &["", "a", "A_b-c.d", "1"], &["-a", "a-", "a/b", "é", &"a".repeat(64)]);
    check(config_map_key, &["a", "A_b", ".a", "a..b"], &["", ".", "..", "..a", "a/b", &"a".repeat(254)]);
    check(env_var_name, &["A", "_a", "a.b", ".a", "-a"], &["", "1", "a b", ".", "..", "..a"]);
    check(relaxed_env_var_name, &["1", "a b", "a:b", ".."], &["", "a=b", "é", "\n"]);
    check(c_identifier, &["a", "_", "A1"], &["", "1", "a-b"]);
}

#[test]
fn other_rules() {
    check(path_segment_name, &["", "a", "...", "sha256:A@B"], &[".", "..", "a/b", "a%b"]);
    check(port_name, &["a", "http-2", "9p"], &["", "A", "1", "-a", "a-", "a--b", "abcdefghijklmnop"]);
    check(percent, &["0%", "100%", "999%"], &["", "%", "-1%", "1", "1.5%", "1%%"]);
    check(http_header_name, &["X-Y", "a1"], &["", "a b", "a_b", "a:"]);
    check(condition_reason, &["A", "A_", "a,b", "A:B_1"], &["", "1", "_a", "a,", "a:", "a b"]);
    check(decimal_integer, &["0", "1", "-1", "120"], &["", "-", "-0", "01", "+1", "1.0", "1a"]);
    assert!(is_valid_port_num(1).is_empty() && is_valid_port_num(65535).is_empty());
    assert_eq!(is_valid_port_num(0), ["must be between 1 and 65535, inclusive"]);
    assert_eq!(user_id(-1), ["must be between 0 and 2147483647, inclusive"]);
    assert!(group_id(i64::from(i32::MAX)).is_empty());
}

#[test]
fn the_words_are_those_of_kubernetes() {
    let label = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and \
        end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
        '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
    let subdomain = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and \
        must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
        '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
    let key = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric \
        character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
        '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
    assert_eq!(dns1123_label("A"), [label]);
    assert_eq!(dns1123_label("a.b"), ["must not contain dots"]);
    assert_eq!(dns1123_label(&"A".repeat(64)), ["must be no more than 63 characters", label]);
    assert_eq!(dns1123_subdomain("A"), [subdomain]);
    assert_eq!(dns1123_subdomain(&"a".repeat(254)), ["must be no more than 253 characters"]);
    assert_eq!(qualified_name(""), ["name part must be non-empty".to_owned(), format!("name part {key}")]);
    assert_eq!(qualified_name("/a"), ["prefix part must be non-empty"]);
    assert_eq!(qualified_name("A/a"), [format!("prefix part {subdomain}")]);
    assert_eq!(
        qualified_name(&format!("{}/{}", "a".repeat(254), "b".repeat(64))),
        ["prefix part must be no more than 253 bytes", "name part must be no more than 63 bytes"]
    );
    assert_eq!(
        qualified_name("a/b/c"),
        [format!("a valid label key {key} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')")]
    );
    assert_eq!(path_segment_name("a/%"), ["may not contain '/'", "may not contain '%'"]);
    assert_eq!(config_map_key("..a"), ["must not start with '..'"]);
    assert_eq!(port_name("-"), ["must contain at least one letter (a-z)", "must not begin or end with a hyphen"]);
    assert_eq!(regex_error("bad", "x+", &[]), "bad (regex used for validation is 'x+')");
}

#[test]
fn a_name_is_made_only_from_good_text() {
    assert_eq!(Namespace::parse("kube-system").unwrap().as_str(), "kube-system");
    assert!(Namespace::parse("Kube").is_err());
    assert_eq!(Name::parse("system:node").unwrap().to_string(), "system:node");
    assert_eq!(Name::parse("a/b").unwrap_err().to_string(), "invalid name \"a/b\": may not contain '/'");
    assert_eq!(Name::parse("").unwrap_err().complaints, ["must be non-empty"]);
}
