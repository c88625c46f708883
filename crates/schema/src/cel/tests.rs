//! Expressions compiled and evaluated, against what cel-go answers.

use super::*;

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
        ("thing.x", "1:1: undeclared reference to 'thing' (in container '')\n | thing.x\n | ^"),
        ("spec.size", "1:5: undefined field 'size'\n | spec.size\n | ....^"),
        ("name > 5", "1:6: found no matching overload for '_>_' applied to '(string, int)'\n | name > 5\n | .....^"),
        (
            "name.hasValue()",
            "1:14: found no matching overload for 'hasValue' applied to 'string.()'\n | name.hasValue()\n | .............^",
        ),
        ("name.matches('(')", "1:14: invalid matches argument\n | name.matches('(')\n | .............^"),
        ("name.x", "1:5: type 'string' does not support field selection\n | name.x\n | ....^"),
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

/// The object that the answers are about.
const OBJECT: &str = include_str!("../../facts/cel-object.json");
/// What cel-go answers: expression, type, value, cost, estimated cost.
const ANSWERS: &str = include_str!("../../facts/cel-answers.tsv");

#[test]
fn answers_and_costs_are_those_of_cel_go() {
    let object: serde_json::Value = serde_json::from_str(OBJECT).expect("JSON");
    let declared = Declared::root(&object["schema"]);
    let mut environment = Environment::default();
    environment.declare_schema("self", &declared);
    environment.declare("oldSelf", declared.ty().clone());
    let mut bindings = Bindings::default();
    for name in ["self", "oldSelf"] {
        bindings.bind(name, Value::under(&object["self"], &declared).expect("an object"));
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
