//! Figures of rules in CEL, one line each: what compiling and evaluating costs. Run by `make bench`.

use std::hint::black_box;
use std::time::Instant;

use serde_json::{Value, json};
use setpoint_schema::cel::{self, Bindings, Budget, Declared, Environment, Program};
use setpoint_schema::custom::ObjectSchema;

const RULES: &[&str] = &[
    "self.replicas > 3",
    "self.replicas > 3 && self.name == 'web'",
    "has(self.mode) && self.mode in ['Fast', 'Slow']",
    "self.ports.all(port, port > 0)",
    "self.conditions.exists(c, c.type == 'Ready' && c.status == 'True')",
    "self.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$') && self.name.size() <= 63",
];

fn main() {
    let condition = json!({"type": "object", "properties": {"type": {"type": "string"}, "status": {"type": "string"}}});
    let schema = json!({"type": "object", "properties": {
        "replicas": {"type": "integer"}, "name": {"type": "string"}, "mode": {"type": "string"},
        "ports": {"type": "array", "items": {"type": "integer"}}, "conditions": {"type": "array", "items": condition},
    }});
    let object: Value = json!({
        "replicas": 4, "name": "web", "mode": "Fast", "ports": (1..=10).collect::<Vec<_>>(),
        "conditions": [{"type": "Progressing", "status": "True"}, {"type": "Ready", "status": "True"}],
    });
    let read = ObjectSchema::new(&schema).expect("a structural schema");
    let declared = Declared::root(&schema);
    let mut environment = Environment::default();
    environment.declare_schema("self", &declared);
    for rule in RULES {
        let compile = nanoseconds(5_000, || drop(black_box(Program::compile(rule, &environment))));
        let program = Program::compile(rule, &environment).expect("it compiles");
        let evaluate = nanoseconds(100_000, || {
            let mut bindings = Bindings::default();
            bindings.bind("self", cel::Value::under(&object, read.reading()).expect("it fits"));
            let _ = black_box(program.evaluate(&bindings, &mut Budget::full()));
        });
        println!("compile {compile} ns, evaluate {evaluate} ns ({} rules/s): {rule}", 1_000_000_000 / evaluate.max(1));
    }
}

fn nanoseconds(count: u32, mut work: impl FnMut()) -> u128 {
    let start = Instant::now();
    (0..count).for_each(|_| work());
    start.elapsed().as_nanos() / u128::from(count)
}
