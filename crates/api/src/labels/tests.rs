//! Facts about label selectors, taken from how Kubernetes answers.

use proptest::prelude::*;
use serde_json::json;

use super::*;

const LABEL_RULE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', \
    and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for \
    validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

fn message(text: &str) -> String {
    Selector::parse(text).map_or_else(|error| error.to_string(), |selector| format!("parsed as {selector}"))
}

#[test]
fn selectors_print_sorted_and_without_spare_space() {
    for (text, printed) in [
        ("", ""),
        ("  ", ""),
        ("x=a,y=b,z=c", "x=a,y=b,z=c"),
        ("z=c, x = a", "x=a,z=c"),
        ("x==a", "x==a"),
        ("x != a", "x!=a"),
        ("x", "x"),
        ("!x", "!x"),
        ("! x", "!x"),
        ("x in (b,a,b)", "x in (a,b)"),
        ("x in (,a)", "x in (,a)"),
        ("x in (a,,c)", "x in (,a,c)"),
        ("x in (a,)", "x in (,a)"),
        ("x in ()", "x in ()"),
        ("x notin (a)", "x notin (a)"),
        ("x=", "x="),
        ("x=,y", "x=,y"),
        ("x>1", "x>1"),
        ("in=in", "in=in"),
        ("notin", "notin"),
        ("in in (in,notin)", "in in (in,notin)"),
        ("x in (a)\t,\n!y", "x in (a),!y"),
        ("example.com/app=web", "example.com/app=web"),
        ("x=a,x=b", "x=a,x=b"),
    ] {
        assert_eq!(message(text), format!("parsed as {printed}"), "{text:?}");
    }
}

#[test]
fn broken_selectors_are_refused_in_the_words_of_kubernetes() {
    for (text, expected) in [
        ("env=prod,", "found '', expected: identifier after ','"),
        (",env", "found ',', expected: !, identifier, or 'end of string'"),
        ("env,,num", "found ',', expected: identifier after ','"),
        ("env===prod", "unable to parse requirement: found '=', expected: identifier"),
        ("env=a b", "found 'b', expected: ',' or 'end of string'"),
        ("env IN (prod)", "unable to parse requirement: found 'IN', expected: in, notin, =, ==, !=, gt, lt"),
        ("=prod", "found '=', expected: !, identifier, or 'end of string'"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("!x=a", "found '=', expected: ',' or 'end of string'"),
        ("x in a", "unable to parse requirement: found 'a' expected: '('"),
        ("x in (", "unable to parse requirement: found '', expected: ',', ')' or identifier"),
        ("x in (a", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("x in (a b)", "unable to parse requirement: found 'b', expected: ',' or ')'"),
        ("x in (,", "unable to parse requirement: found '', expected: ',', or identifier"),
        ("x in (a,=)", "unable to parse requirement: found '=', expected: ',', or identifier"),
        (
            "num>x",
            "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be \
             an integer",
        ),
    ] {
        assert_eq!(message(text), expected, "{text:?}");
    }
    assert_eq!(
        message("env=a_/b"),
        format!("unable to parse requirement: values[0][env]: Invalid value: \"a_/b\": {LABEL_RULE}")
    );
    assert_eq!(
        message("-x"),
        "unable to parse requirement: <nil>: Invalid value: \"-x\": name part must consist of alphanumeric characters, \
         '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or \
         '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
    );
    let long = "v".repeat(64);
    assert_eq!(
        message(&format!("env={long}")),
        format!(
            "unable to parse requirement: values[0][env]: Invalid value: \"{long}\": must be no more than 63 bytes"
        )
    );
}

#[test]
fn each_operator_matches_what_it_says() {
    let labels = [("env", "prod"), ("num", "5"), ("empty", "")];
    for (text, expected) in [
        ("", true),
        ("env=prod", true),
        ("env==prod", true),
        ("env=dev", false),
        ("env!=dev", true),
        ("env!=prod", false),
        ("absent!=x", true),
        ("absent=", false),
        ("empty=", true),
        ("env in (dev,prod)", true),
        ("env in (dev)", false),
        ("absent in (x)", false),
        ("env notin (dev)", true),
        ("absent notin (x)", true),
        ("env", true),
        ("absent", false),
        ("!absent", true),
        ("!env", false),
        ("num>4", true),
        ("num>5", false),
        ("num<6", true),
        ("absent<6", false),
        ("env>1", false),
        ("env=prod,num>9", false),
    ] {
        assert_eq!(Selector::parse(text).unwrap().matches(labels.as_slice()), expected, "{text:?}");
    }
    assert!(!Selector::nothing().matches(labels.as_slice()));
    assert!(Selector::everything().matches(&BTreeMap::new()));
}

#[test]
fn an_exact_match_is_known_only_where_one_value_is_left() {
    for (text, expected) in
        [("a=1", Some("1")), ("a in (1)", Some("1")), ("a in (1,2)", None), ("a!=1", None), ("b=1", None), ("a", None)]
    {
        assert_eq!(Selector::parse(text).unwrap().exact_match("a"), expected, "{text:?}");
    }
}

#[test]
fn a_label_selector_of_an_object_becomes_a_selector() {
    let selector = |value| serde_json::from_value::<LabelSelector>(value).unwrap().selector();
    let text = |value| selector(value).map_or_else(|error| error.to_string(), |it: Selector| it.to_string());
    assert!(selector(json!({})).unwrap().is_everything());
    assert!(selector(json!({"matchLabels": null, "matchExpressions": null})).unwrap().is_everything());
    assert_eq!(
        text(json!({"matchLabels": {"b": "1"}, "matchExpressions": [
            {"key": "a", "operator": "In", "values": ["y", "x"]}, {"key": "c", "operator": "DoesNotExist"}]})),
        "a in (x,y),b=1,!c"
    );
    assert_eq!(
        text(json!({"matchExpressions": [{"key": "a", "operator": "in"}]})),
        "\"in\" is not a valid label selector operator"
    );
    assert_eq!(
        text(json!({"matchExpressions": [{"key": "a", "operator": "In"}]})),
        "values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty"
    );
    assert_eq!(
        text(json!({"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["x"]}]})),
        "values: Invalid value: [\"x\"]: values set must be empty for exists and does not exist"
    );
}

#[test]
fn a_label_selector_is_validated_in_the_words_of_kubernetes() {
    let value = json!({"matchLabels": {"a": "-"}, "matchExpressions": [
        {"key": "a", "operator": "In"},
        {"key": "a", "operator": "Exists", "values": ["x"]},
        {"key": "a", "operator": "Near", "values": ["-"]}]});
    let selector: LabelSelector = serde_json::from_value(value).unwrap();
    let spec = Path::root("spec");
    let path = spec.child("selector");
    let seen: Vec<_> = selector.validate(ValueRules::Strict, &path).iter().map(ToString::to_string).collect();
    assert_eq!(
        seen,
        [
            format!("spec.selector.matchLabels: Invalid value: \"-\": {LABEL_RULE}"),
            "spec.selector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or \
             'NotIn'"
                .to_owned(),
            "spec.selector.matchExpressions[1].values: Forbidden: may not be specified when `operator` is 'Exists' or \
             'DoesNotExist'"
                .to_owned(),
            "spec.selector.matchExpressions[2].operator: Invalid value: \"Near\": not a valid selector operator"
                .to_owned(),
            format!("spec.selector.matchExpressions[2].values[0]: Invalid value: \"-\": {LABEL_RULE}"),
        ]
    );
    assert_eq!(selector.validate(ValueRules::Lenient, &path).len(), 4);
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in "[a-c=!(),<> \\x00in-]{0,24}|\\PC{0,24}") {
        let _ = Selector::parse(&text);
    }

    #[test]
    fn printing_and_reading_give_the_same_selector(
        text in "(!?[a-d]|[a-d](=|==|!=)[x-z]{0,2}|[a-d] (in|notin) \\([x-z]{0,2}(,[x-z]{0,2}){0,3}\\)|[a-d][<>][0-9]{1,5})\
                 (,(!?[a-d]|[a-d](=|==|!=)[x-z]{0,2}|[a-d] (in|notin) \\([x-z]{0,2}(,[x-z]{0,2}){0,3}\\))){0,3}"
    ) {
        let selector = Selector::parse(&text).unwrap();
        prop_assert_eq!(Selector::parse(&selector.to_string()).unwrap(), selector);
    }
}
