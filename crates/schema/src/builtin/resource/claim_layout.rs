//! Claims as messages show them.

use super::super::go_value::Layout;

pub(super) const SPEC: Layout = Layout::Struct(&[(
    "Devices",
    "devices",
    Layout::Struct(&[
        ("Requests", "requests", Layout::List(&REQUEST)),
        (
            "Constraints",
            "constraints",
            Layout::List(&Layout::Struct(&[
                ("Requests", "requests", Layout::Json),
                ("MatchAttribute", "matchAttribute", Layout::Json),
                ("DistinctAttribute", "distinctAttribute", Layout::Json),
            ])),
        ),
        (
            "Config",
            "config",
            Layout::List(&Layout::Struct(&[
                ("Requests", "requests", Layout::Json),
                ("Opaque", "opaque", Layout::Pointer(&OPAQUE)),
            ])),
        ),
    ]),
)]);

pub(super) const ALLOCATION: Layout = Layout::Struct(&[
    (
        "Devices",
        "devices",
        Layout::Struct(&[
            (
                "Results",
                "results",
                Layout::List(&Layout::Struct(&[
                    ("Request", "request", Layout::Text),
                    ("Driver", "driver", Layout::Text),
                    ("Pool", "pool", Layout::Text),
                    ("Device", "device", Layout::Text),
                    ("AdminAccess", "adminAccess", Layout::Json),
                    ("Tolerations", "tolerations", Layout::List(&TOLERATION)),
                    ("BindingConditions", "bindingConditions", Layout::Json),
                    ("BindingFailureConditions", "bindingFailureConditions", Layout::Json),
                    ("ShareID", "shareID", Layout::Json),
                    ("ConsumedCapacity", "consumedCapacity", Layout::Json),
                ])),
            ),
            (
                "Config",
                "config",
                Layout::List(&Layout::Struct(&[
                    ("Source", "source", Layout::Text),
                    ("Requests", "requests", Layout::Json),
                    ("Opaque", "opaque", Layout::Pointer(&OPAQUE)),
                ])),
            ),
        ]),
    ),
    ("NodeSelector", "nodeSelector", Layout::Pointer(&NODE_SELECTOR)),
    ("AllocationTimestamp", "allocationTimestamp", Layout::Json),
]);

const REQUEST: Layout = Layout::Struct(&[
    ("Name", "name", Layout::Text),
    (
        "Exactly",
        "exactly",
        Layout::Pointer(&Layout::Struct(&[
            ("DeviceClassName", "deviceClassName", Layout::Text),
            ("Selectors", "selectors", Layout::List(&SELECTOR)),
            ("AllocationMode", "allocationMode", Layout::Text),
            ("Count", "count", Layout::Number),
            ("AdminAccess", "adminAccess", Layout::Json),
            ("Tolerations", "tolerations", Layout::List(&TOLERATION)),
            ("Capacity", "capacity", Layout::Pointer(&CAPACITY)),
        ])),
    ),
    (
        "FirstAvailable",
        "firstAvailable",
        Layout::List(&Layout::Struct(&[
            ("Name", "name", Layout::Text),
            ("DeviceClassName", "deviceClassName", Layout::Text),
            ("Selectors", "selectors", Layout::List(&SELECTOR)),
            ("AllocationMode", "allocationMode", Layout::Text),
            ("Count", "count", Layout::Number),
            ("Tolerations", "tolerations", Layout::List(&TOLERATION)),
            ("Capacity", "capacity", Layout::Pointer(&CAPACITY)),
        ])),
    ),
]);
const SELECTOR: Layout =
    Layout::Struct(&[("CEL", "cel", Layout::Pointer(&Layout::Struct(&[("Expression", "expression", Layout::Text)])))]);
const TOLERATION: Layout = Layout::Struct(&[
    ("Key", "key", Layout::Text),
    ("Operator", "operator", Layout::Text),
    ("Value", "value", Layout::Text),
    ("Effect", "effect", Layout::Text),
    ("TolerationSeconds", "tolerationSeconds", Layout::Json),
]);
const CAPACITY: Layout = Layout::Struct(&[("Requests", "requests", Layout::Json)]);
const OPAQUE: Layout =
    Layout::Struct(&[("Driver", "driver", Layout::Text), ("Parameters", "parameters", Layout::Json)]);
const NODE_SELECTOR: Layout = Layout::Struct(&[(
    "NodeSelectorTerms",
    "nodeSelectorTerms",
    Layout::List(&Layout::Struct(&[
        ("MatchExpressions", "matchExpressions", Layout::List(&REQUIREMENT)),
        ("MatchFields", "matchFields", Layout::List(&REQUIREMENT)),
    ])),
)]);
const REQUIREMENT: Layout = Layout::Struct(&[
    ("Key", "key", Layout::Text),
    ("Operator", "operator", Layout::Text),
    ("Values", "values", Layout::Json),
]);
