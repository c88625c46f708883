//! Expressions compiled and evaluated, against what cel-go answers.

use super::*;
use crate::custom::ObjectSchema;

fn environment() -> Environment {
    let mut environment = Environment::default();
    environment.declare("object", Type::Dyn);
    environment.declare("name", Type::String);
    environment.declare("ports", Type::list(Type::Int));
    environment.declare("spec", Type::object("Spec", [("replicas".to_owned(), Type::Int)]));
    environment
}

fn gives(expression: &str) -> String {
    match compile(expression, &environment()) {
        Ok(ty) => ty.to_string(),
        Err(detail) => detail,
    }
}

#[test]
fn the_type_of_an_expression_is_found() {
    for (expression, ty) in [
        ("1 + 1", "int"),
        ("name + 'x'", "string"),
        ("spec.replicas > 1 && name.startsWith('a')", "bool"),
        ("ports.all(p, p > 1)", "bool"),
        ("ports.map(p, p * 2)", "list(int)"),
        ("ports.exists_one(p, p == 1)", "bool"),
        ("object.x.y == 1", "bool"),
        ("object.x", "dyn"),
        ("has(object.x) ? object.x : 'y'", "dyn"),
        ("[1, 2]", "list(int)"),
        ("{'a': 1}", "map(string, int)"),
        ("1 in ports", "bool"),
        ("ports[0]", "int"),
        ("sets.contains(ports, [1])", "bool"),
        ("quantity('1').compareTo(quantity('2'))", "int"),
        ("type(name) == string", "bool"),
        ("null", "null_type"),
        ("object.?a.orValue('x') == 'x'", "bool"),
        ("timestamp('2020-01-01T00:00:00Z') + duration('1h')", "google.protobuf.Timestamp"),
    ] {
        assert_eq!(gives(expression), ty, "{expression}");
    }
}

#[test]
fn what_is_wrong_is_told_with_its_place() {
    for (expression, message) in [
        ("name.(", "1:6: Syntax error: no viable alternative at input '.('\n | name.(\n | .....^"),
        ("1.2.3", "1:4: Syntax error: extraneous input '.3' expecting <EOF>\n | 1.2.3\n | ...^"),
        ("a b c", "1:3: Syntax error: mismatched input 'b' expecting <EOF>\n | a b c\n | ..^"),
        ("a ? b", "1:6: Syntax error: mismatched input '<EOF>' expecting ':'\n | a ? b\n | .....^"),
        ("thing.x", "1:1: undeclared reference to 'thing' (in container '')\n | thing.x\n | ^"),
        ("spec.size", "1:5: undefined field 'size'\n | spec.size\n | ....^"),
        ("name > 5", "1:6: found no matching overload for '_>_' applied to '(string, int)'\n | name > 5\n | .....^"),
        (
            "name.hasValue()",
            "1:14: found no matching overload for 'hasValue' applied to 'string.()'\n | name.hasValue()\n | .............^",
        ),
        ("name.matches('(')", "1:14: invalid matches argument\n | name.matches('(')\n | .............^"),
        ("name.x", "1:5: type 'string' does not support field selection\n | name.x\n | ....^"),
        ("'é' == thing", "1:8: undeclared reference to 'thing' (in container '')\n | 'é' == thing\n | .．.....^"),
        ("foo(1)", "1:4: undeclared reference to 'foo' (in container '')\n | foo(1)\n | ...^"),
        (
            "true &&\n1 == 'a'",
            "2:3: found no matching overload for '_==_' applied to '(int, string)'\n | 1 == 'a'\n | ..^",
        ),
    ] {
        assert_eq!(gives(expression), format!("compilation failed: ERROR: <input>:{message}"), "{expression}");
    }
}

#[test]
fn no_expression_breaks_the_parser() {
    let half = EXPRESSION_CHARS_MAX / 2;
    for expression in [
        vec!["1"; half].join("+"),
        vec!["true"; half / 3].join("&&"),
        format!("{}1{}", "(".repeat(half - 1), ")".repeat(half - 1)),
        format!("object{}", ".a".repeat(half - 4)),
        "-".repeat(EXPRESSION_CHARS_MAX),
        "[".repeat(EXPRESSION_CHARS_MAX),
        "1".repeat(EXPRESSION_CHARS_MAX + 1),
    ] {
        let _ = compile(&expression, &environment());
    }
}

#[test]
fn classes_of_letters_are_those_of_ascii() {
    for (expression, expected) in [
        (r"'\u0661'.matches('^\\d$')", false),
        (r"'\u00e9'.matches('^\\w$')", false),
        (r"'\u00a0'.matches('^\\s$')", false),
        (r"'1'.matches('^\\d$') && 'a'.matches('^\\w$') && ' '.matches('^\\s$')", true),
        (r"'\u0661a1'.find('\\d') == '1'", true),
    ] {
        let program = Program::compile(expression, &Environment::default()).expect("it compiles");
        let value = program.evaluate(&Bindings::default(), &mut Budget::full()).expect("a value");
        assert_eq!(value.as_bool(), Some(expected), "{expression}");
    }
}

/// The object that the answers are about.
const OBJECT: &str = include_str!("../../facts/cel-object.json");
/// What cel-go answers: expression, type, value, cost, estimated cost.
const ANSWERS: &str = include_str!("../../facts/cel-answers.tsv");

#[test]
fn answers_and_costs_are_those_of_cel_go() {
    let object: serde_json::Value = serde_json::from_str(OBJECT).expect("JSON");
    let schema = ObjectSchema::new(&object["schema"]).expect("a structural schema");
    let declared = Declared::root(&object["schema"]);
    let mut environment = Environment::default();
    environment.declare_schema("self", &declared);
    environment.declare("oldSelf", declared.ty().clone());
    let mut bindings = Bindings::default();
    for name in ["self", "oldSelf"] {
        bindings.bind(name, Value::under(&object["self"], schema.reading()).expect("an object"));
    }
    let mut different = Vec::new();
    for line in ANSWERS.lines().filter(|line| !line.starts_with('#')) {
        let (expression, expected) = line.split_once('\t').expect("columns");
        let text: String = serde_json::from_str(expression).expect("a text");
        let answered = answer(&text, &environment, &bindings);
        if answered != expected {
            different.push(format!("{expression}\n  expected {expected}\n  answered {answered}"));
        }
    }
    assert!(different.is_empty(), "{} differ:\n{}", different.len(), different.join("\n"));
}

fn answer(expression: &str, environment: &Environment, bindings: &Bindings<'_>) -> String {
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let program = match Program::compile(expression, environment) {
        Ok(program) => program,
        Err(why) => {
            return match (why.strip_prefix("compilation failed: "), why.strip_prefix("program instantiation failed: "))
            {
                (Some(why), _) => format!("compile\t{}\t0\t0\t0", quoted(why)),
                (_, Some(why)) => format!("program\t{}\t0\t0\t0", quoted(why)),
                _ => why,
            };
        }
    };
    let mut budget = Budget::full();
    let value = match program.evaluate(bindings, &mut budget) {
        Ok(Value::String(text)) => quoted(text.as_str()),
        Ok(value) => value.to_string(),
        Err(error) => format!("error {}", quoted(&error.to_string())),
    };
    let cost = BUDGET_COST_MAX - budget.left();
    let Range { min, max } = program.estimate();
    format!("{}\t{value}\t{cost}\t{min}\t{max}", program.ty().shown())
}

#[test]
fn no_expression_takes_forever() {
    let doubled = |of: &str, step: &str, times: usize| format!("[{of}]{}", step.repeat(times));
    for expression in [
        doubled("[1]", ".map(a, a + a)", 60),
        doubled("[1]", ".map(a, [a, a])", 60) + " == " + &doubled("[1]", ".map(a, [a, a])", 60),
        doubled("'ab'", ".map(a, a.replace('', a))", 20),
        doubled("'ab'", ".map(a, '%s%s%s%s%s%s%s%s'.format([a, a, a, a, a, a, a, a]))", 20),
        doubled("[[1]]", ".map(a, [a, a].flatten())", 60),
        "lists.range(1000000).distinct().size() > 0".to_owned(),
        "lists.range(10000).all(x, lists.range(10000).all(y, x + y >= 0))".to_owned(),
    ] {
        let program = Program::compile(&expression, &Environment::default()).expect("sound");
        let outcome = program.evaluate(&Bindings::default(), &mut Budget::full());
        assert_eq!(outcome.err(), Some(EvalError::CostExceeded), "{expression}");
    }
}

mod random {
    use proptest::prelude::*;

    use super::*;

    /// Expressions of all shapes, most of them wrong.
    fn expressions() -> impl Strategy<Value = String> {
        let leaf = prop::sample::select(vec![
            "1",
            "-1",
            "0",
            "9223372036854775807",
            "2u",
            "0u",
            "1.5",
            "0.0",
            "'a'",
            "''",
            "'é9'",
            "b'x'",
            "true",
            "false",
            "null",
            "[]",
            "{}",
            "self",
            "self.n",
            "self.name",
            "self.list",
            "self.labels",
            "self.ios",
            "self.when",
            "self.span",
            "self.data",
            "self.conds",
            "self.nested",
            "self.set",
            "self.nul",
            "x",
            "duration('1h')",
            "timestamp('2024-01-01T00:00:00Z')",
            "quantity('1Gi')",
            "ip('::1')",
            "cidr('10.0.0.0/8')",
            "url('https://a.b/c?d=e')",
            "semver('1.2.3')",
            "optional.none()",
        ]);
        leaf.prop_map(str::to_owned).prop_recursive(5, 40, 3, |inner| {
            let two = (inner.clone(), inner.clone());
            let operator = prop::sample::select(vec!["+", "-", "*", "/", "%", "==", "!=", "<", ">=", "in", "&&", "||"]);
            let method = prop::sample::select(vec![
                "size",
                "startsWith",
                "matches",
                "split",
                "replace",
                "substring",
                "indexOf",
                "lastIndexOf",
                "join",
                "format",
                "charAt",
                "sum",
                "min",
                "max",
                "sort",
                "slice",
                "flatten",
                "distinct",
                "getHours",
                "find",
                "findAll",
                "orValue",
                "value",
                "first",
                "containsIP",
                "masked",
                "add",
                "compareTo",
                "isGreaterThan",
                "getQuery",
                "contains",
                "reverse",
                "isSorted",
            ]);
            let function = prop::sample::select(vec![
                "int",
                "uint",
                "double",
                "string",
                "bytes",
                "bool",
                "dyn",
                "type",
                "size",
                "duration",
                "timestamp",
                "quantity",
                "ip",
                "cidr",
                "url",
                "semver",
                "lists.range",
                "optional.of",
                "optional.ofNonZeroValue",
                "strings.quote",
                "isURL",
            ]);
            let loops = prop::sample::select(vec!["all", "exists", "exists_one", "filter", "map", "sortBy"]);
            prop_oneof![
                (two.clone(), operator).prop_map(|((a, b), operator)| format!("({a} {operator} {b})")),
                (inner.clone(), method, prop::collection::vec(inner.clone(), 0..3))
                    .prop_map(|(target, method, args)| format!("{target}.{method}({})", args.join(", "))),
                (function, inner.clone()).prop_map(|(function, arg)| format!("{function}({arg})")),
                (two.clone(), loops).prop_map(|((range, body), kind)| format!("{range}.{kind}(x, {body})")),
                (inner.clone(), inner.clone(), inner.clone()).prop_map(|(a, b, c)| format!("({a} ? {b} : {c})")),
                two.clone().prop_map(|(a, b)| format!("{a}[{b}]")),
                two.clone().prop_map(|(a, b)| format!("dyn({a})[?{b}]")),
                two.clone().prop_map(|(a, b)| format!("[{a}, {b}]")),
                two.prop_map(|(a, b)| format!("{{{a}: {b}}}")),
                inner.clone().prop_map(|a| format!("{a}.?k.orValue({a})")),
                inner.prop_map(|a| format!("-{a}")),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn no_expression_panics(expression in expressions()) {
            let object: serde_json::Value = serde_json::from_str(OBJECT).expect("JSON");
            let schema = ObjectSchema::new(&object["schema"]).expect("a structural schema");
    let declared = Declared::root(&object["schema"]);
            let mut environment = Environment::default();
            environment.declare_schema("self", &declared);
            environment.declare("x", Type::Dyn);
            if let Ok(program) = Program::compile(&expression, &environment) {
                let mut bindings = Bindings::default();
                bindings.bind("self", Value::under(&object["self"], schema.reading()).expect("an object"));
                bindings.bind("x", Value::Int(1));
                let mut budget = Budget::full();
                let first = program.evaluate(&bindings, &mut budget).map(|value| value.to_string());
                let second = program.evaluate(&bindings, &mut Budget::full()).map(|value| value.to_string());
                prop_assert_eq!(first, second);
            }
        }

        #[test]
        fn no_text_panics(text in "[-a-z0-9 .,?:'\"\\\\(){}\\[\\]!&|+*/%<>=]{0,40}") {
            let _ = Program::compile(&text, &Environment::default());
        }
    }
}
