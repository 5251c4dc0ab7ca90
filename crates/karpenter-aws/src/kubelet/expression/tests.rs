//! Expressions with upstream's recorded results (karpenter-provider-aws, main at 1d927085d, package cel) for the
//! variables below. Two results differ: upstream wraps `1e300` around to a negative number and rejects that in the next
//! step, while here it is out of range; and types cannot be compared here, because the `cel` crate has no function
//! `type`.

use super::*;
use Answer::*;

enum Answer {
    /// The expression does not compile.
    Refused,
    /// The expression compiles, but its evaluation fails for these variables.
    Fails,
    Is(i64),
}

const TABLE: &[(&str, Answer)] = &[
    ("1", Is(1)),
    ("vcpus", Is(8)),
    ("vcpus * 10", Is(80)),
    ("vcpus*10+memory_mib/100", Is(243)),
    ("memory_mib / 100", Is(163)),
    ("memory_mib % 1000", Is(384)),
    ("-vcpus", Is(-8)),
    ("max(60, vcpus * 30)", Is(240)),
    ("min(110, max_pods)", Is(58)),
    ("min(default_enis, 3) * (ips_per_eni - 1) + 2", Is(44)),
    ("default_enis * (ips_per_eni - 1) + 2", Is(58)),
    ("1.9", Is(1)),
    ("-1.9", Is(-1)),
    ("vcpus * 1.5", Refused),
    ("double(vcpus) * 1.5", Is(12)),
    ("double(vcpus) * 0.25", Is(2)),
    ("int(double(vcpus) * 1.9)", Is(15)),
    ("max(1.5, vcpus)", Is(8)),
    ("max(vcpus, 1.5)", Is(8)),
    ("min(1.5, 2.5)", Is(1)),
    ("min(vcpus, 9.5)", Is(8)),
    ("max(1,2,3)", Refused),
    ("max(1)", Refused),
    ("max([1,2])", Refused),
    (r#"min("a", 1)"#, Refused),
    ("max(1u, 2)", Refused),
    ("vcpus > 4 ? 100 : 50", Is(100)),
    ("vcpus > 4 ? 100 : 1.5", Refused),
    ("vcpus > 4 ? 1.5 : 2.5", Is(1)),
    ("vcpus > 2.5 ? 1 : 2", Refused),
    ("vcpus == 8.0 ? 1 : 2", Refused),
    (r#"instance_type == "c5.2xlarge" ? 1 : 2"#, Is(1)),
    (r#"instance_type.startsWith("c5.") ? 11 : 12"#, Is(11)),
    (r#"instance_type.endsWith(".metal") ? 11 : 12"#, Is(12)),
    (r#"instance_type.contains("5") ? 1 : 0"#, Is(1)),
    (r#"instance_type.matches("^c[0-9]") ? 1 : 0"#, Is(1)),
    ("size(instance_type)", Is(10)),
    ("instance_type.size()", Is(10)),
    ("instance_type", Refused),
    (r#""100m""#, Refused),
    ("true", Refused),
    ("vcpus > 1", Refused),
    ("foo", Refused),
    ("foo + 1", Refused),
    ("foo(1)", Refused),
    ("vcpus +", Refused),
    ("", Refused),
    ("(", Refused),
    ("1 +* 2", Refused),
    ("vcpus / 0", Fails),
    ("vcpus % 0", Fails),
    ("1.0 / 0.0", Fails),
    ("-1.0 / 0.0", Fails),
    ("0.0 / 0.0", Fails),
    ("double(vcpus) / 0.0", Fails),
    ("9223372036854775807 + 1", Fails),
    ("9223372036854775807", Is(9223372036854775807)),
    ("9223372036854775808", Refused),
    ("-9223372036854775808", Is(-9223372036854775808)),
    ("1e300", Fails),
    ("vcpus in [4, 8] ? 1 : 0", Is(1)),
    (r#"instance_type in ["a", "c5.2xlarge"] ? 1 : 0"#, Is(1)),
    ("[1, 2, 3][1]", Is(2)),
    ("[1,2,3].map(x, x * 2)[2]", Is(6)),
    ("[1,2].exists(x, x == vcpus) ? 1 : 0", Is(0)),
    (r#"{"a": 1}["a"]"#, Is(1)),
    (r#"{"c5.2xlarge": 7}[instance_type]"#, Is(7)),
    (r#"{"other": 7}[instance_type]"#, Fails),
    (r#"int("12")"#, Is(12)),
    (r#"int("x")"#, Fails),
    ("int(3.99)", Is(3)),
    ("int(1e300)", Fails),
    (r#"double("1.5")"#, Is(1)),
    ("uint(5)", Refused),
    ("5u", Refused),
    ("int(5u)", Is(5)),
    ("vcpus + 5u", Refused),
    ("string(vcpus)", Refused),
    ("int(string(vcpus)) + 1", Is(9)),
    ("vcpus && true", Refused),
    ("!(vcpus > 1) ? 1 : 2", Is(2)),
    ("vcpus > 1 && memory_mib > 1 ? 1 : 2", Is(1)),
    ("vcpus > 100 || memory_mib < 1 ? 1 : 2", Is(2)),
    ("has(vcpus.x) ? 1 : 2", Refused),
    ("vcpus.x", Refused),
    ("instance_type + 1", Refused),
    (r#"instance_type + "a" == "c5.2xlargea" ? 1 : 0"#, Is(1)),
    ("null", Refused),
    (r#"b"abc""#, Refused),
    ("[1]", Refused),
    ("{}", Refused),
    (r#"duration("1h")"#, Refused),
    ("type(1) == int ? 1 : 2", Refused),
    ("dyn(1)", Refused),
    ("1 == 1 ? dyn(2) : 3", Refused),
    ("math.greatest(1,2)", Refused),
    ("vcpus <= 8 ? max(1, 2) : min(3, 4)", Is(2)),
    ("(1 + 2) * 3", Is(9)),
    ("2 * -3", Is(-6)),
    ("vcpus - memory_mib", Is(-16376)),
    ("max(0, vcpus - 100)", Is(0)),
    ("memory_mib > 8192 ? (memory_mib > 16000 ? 3 : 2) : 1", Is(3)),
    (
        "vcpus*vcpus*vcpus*vcpus*vcpus*vcpus*vcpus*vcpus*vcpus*vcpus*vcpus*vcpus*vcpus*vcpus*vcpus*vcpus*vcpus*vcpus*vcpus*vcpus*vcpus*vcpus",
        Fails,
    ),
    ("0x10", Is(16)),
    (r#"vcpus == "8" ? 1 : 2"#, Refused),
    ("1 < 2 < 3 ? 1 : 0", Refused),
    ("vcpus != memory_mib ? 1 : 0", Is(1)),
    (r#"instance_type < "d" ? 1 : 0"#, Is(1)),
    ("instance_type[0]", Refused),
    (r#"[1, "a"][0]"#, Refused),
    ("[1, 2.5][0]", Refused),
    ("true ? 1 : foo", Refused),
    ("1 == 1 ? 5 : 1 / 0", Is(5)),
    ("10Gi", Refused),
    ("1.5.5", Refused),
    ("100m", Refused),
    ("max(vcpus, )", Refused),
    ("vcpus // comment", Is(8)),
    ("vcpus\n* 2", Is(16)),
];

fn variables() -> Variables {
    Variables {
        vcpus: 8,
        memory_mib: 16384,
        default_enis: 4,
        ips_per_eni: 15,
        max_pods: 58,
        instance_type: "c5.2xlarge".to_owned(),
    }
}

fn expressions() -> Expressions {
    Expressions::new(Clock::starting_at(jiff::Timestamp::UNIX_EPOCH))
}

#[tokio::test]
async fn expression_results_equal_upstream() {
    let expressions = expressions();
    let mut wrong = Vec::new();
    for (text, expected) in TABLE {
        let compiled = expressions.compile(text);
        let answer = expressions.evaluate(text, &variables());
        let is_right = match expected {
            Refused => compiled.is_err(),
            Fails => compiled.is_ok() && answer.is_err(),
            Is(number) => answer == Ok(*number),
        };
        if !is_right {
            wrong.push(format!("{text:?}: compiled {:?}, answer {answer:?}", compiled.map(|_| ())));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn compile_error_names_the_cause() {
    let expressions = expressions();
    for (text, expected) in [
        ("foo + 1", "compiling expression, undeclared reference to 'foo' (expression=foo + 1)"),
        (
            "vcpus * 1.5",
            "compiling expression, found no matching overload for '_*_' applied to '(int, double)' (expression=vcpus * 1.5)",
        ),
        ("vcpus > 1", "expression must return int or double (expression=vcpus > 1, output-type=bool)"),
        ("[1]", "expression must return int or double (expression=[1], output-type=list(int))"),
        ("{}", "expression must return int or double (expression={}, output-type=map(dyn, dyn))"),
        ("vcpus.x", "compiling expression, type 'int' does not support field selection (expression=vcpus.x)"),
    ] {
        let error = expressions.compile(text).expect_err(text);
        assert_eq!(error.to_string(), expected);
    }
}

#[tokio::test]
async fn evaluation_error_names_the_instance_type() {
    let error = expressions().evaluate("1.0 / 0.0", &variables()).expect_err("infinite");
    assert_eq!(
        error.to_string(),
        "expression returned a non-finite value (expression=1.0 / 0.0, instance-type=c5.2xlarge, value=inf)"
    );
    let error = expressions().evaluate("vcpus / 0", &variables()).expect_err("division by zero");
    assert!(error.to_string().ends_with("(expression=vcpus / 0, instance-type=c5.2xlarge)"), "{error}");
}

/// The limits bound recursion such that it fits on the stack of a worker thread, even in a build without optimisation.
#[test]
fn deep_or_long_expressions_do_not_overflow_the_stack() {
    let run = || {
        let hostile = [
            format!("{}1{}", "(".repeat(5000), ")".repeat(5000)),
            format!("1{}", "+1".repeat(5000)),
            "x".repeat(10_000),
            format!("{}1{}", "[".repeat(OPERATORS_MAX), "]".repeat(OPERATORS_MAX)),
        ];
        for text in hostile {
            assert!(compile(&text).is_err(), "{} bytes", text.len());
        }
        let large = [
            format!("{}1{}", "(".repeat(80), ")".repeat(80)),
            format!("1{}", "+1".repeat(OPERATORS_MAX)),
            format!("{}1", "-".repeat(OPERATORS_MAX)),
            format!("{}1", "false?2:".repeat(20)),
        ];
        for text in large {
            let compiled = compile(&text).unwrap_or_else(|error| panic!("{error}"));
            assert!(compiled.program.execute(&variables().context()).is_ok(), "{} bytes", text.len());
        }
    };
    let worker = std::thread::Builder::new().stack_size(2 * 1024 * 1024).spawn(run).expect("a thread");
    worker.join().expect("no overflow");
}

#[tokio::test(start_paused = true)]
async fn compiled_expression_is_cached_while_in_use() {
    let expressions = expressions();
    let first = expressions.compile("vcpus").expect("compiles");
    tokio::time::advance(TTL - Duration::from_secs(1)).await;
    let second = expressions.compile("vcpus").expect("compiles");
    assert!(Arc::ptr_eq(&first, &second));
    tokio::time::advance(TTL - Duration::from_secs(1)).await;
    assert!(Arc::ptr_eq(&first, &expressions.compile("vcpus").expect("compiles")));
    tokio::time::advance(TTL).await;
    assert!(!Arc::ptr_eq(&first, &expressions.compile("vcpus").expect("compiles")));
}
