//! Property tests: for any custom user data, rendering must return a result or an error, without a panic.

use karpenter_userdata::{AmiFamily, UserDataError, render};
use proptest::prelude::*;

use super::cases;

fn rendered(family: AmiFamily, text: String) -> Result<String, UserDataError> {
    let mut input = cases::plain(family);
    input.custom_user_data = Some(text);
    render(&input).map(|answer| answer.text)
}

proptest! {
    #[test]
    fn arbitrary_text_does_not_panic(text in "\\PC*|(?s).*") {
        for family in AmiFamily::ALL {
            let _ = rendered(family, text.clone());
        }
    }

    /// Random lines of the supported formats reach more of the code than random text.
    #[test]
    fn lines_of_known_formats_do_not_panic(
        lines in prop::collection::vec(
            prop::sample::select(vec![
                "MIME-Version: 1.0", "Content-Type: multipart/mixed; boundary=\"B\"", "content-type: text/plain",
                "Content-Transfer-Encoding: quoted-printable", "", "--B", "--B--", "--//", "--//--", " folded", "a=",
                "=ZZ", "#!/bin/bash", "a: b", "- a", "---", "[settings]", "[settings.kubernetes]", "max-pods = 3",
                "[settings.kubernetes.node-labels]", "[[settings.x]]", "a = [1, \"b\"]", "\"", "\r", "\t", "ä",
            ]),
            0..24,
        ),
        ending in prop::sample::select(vec!["\n", "\r\n"]),
    ) {
        let text = lines.join(ending);
        for family in AmiFamily::ALL {
            let _ = rendered(family, text.clone());
        }
    }

    /// The body of every part of a valid archive must be unchanged in the result.
    #[test]
    fn parts_are_copied_unchanged(
        bodies in prop::collection::vec("([a-zA-Z0-9 #:=/.\\-äß\"']|--//|--B|--//--){0,40}(\n([a-z ]|--//){0,20}){0,4}", 1..5),
    ) {
        prop_assume!(bodies.iter().all(|body| body.lines().all(|line| !line.starts_with("--B"))));
        let mut text = String::from("MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"B\"\n\n");
        for body in &bodies {
            text.push_str(&format!("--B\nContent-Type: text/plain\n\n{body}\n"));
        }
        text.push_str("--B--\n");
        let answer = rendered(AmiFamily::Al2, text).expect("a valid archive");
        let mut rest = answer.as_str();
        for body in &bodies {
            let part = format!("Content-Type: text/plain\n\n{body}\n--//");
            let start = rest.find(&part);
            prop_assert!(start.is_some(), "{body:?} is missing in {answer}");
            rest = &rest[start.unwrap_or(0) + part.len() - 4..];
        }
    }
}

/// Deeply nested documents must not overflow the stack, which has 2 MiB in a worker thread.
#[test]
fn deeply_nested_documents_do_not_overflow_the_stack() {
    let run = || {
        for (family, text) in [
            (AmiFamily::Al2023, "[".repeat(100_000)),
            (AmiFamily::Al2023, "{a: ".repeat(50_000)),
            (AmiFamily::Al2023, (0..5000).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect()),
            (AmiFamily::Bottlerocket, format!("a = {}", "[".repeat(100_000))),
            (AmiFamily::Bottlerocket, format!("[settings.{}a]\n", "a.".repeat(50_000))),
            (AmiFamily::Bottlerocket, format!("[settings]\na = {}", "{ a = ".repeat(50_000))),
        ] {
            let _ = rendered(family, text);
        }
    };
    let worker = std::thread::Builder::new().stack_size(2 * 1024 * 1024).spawn(run).expect("a thread");
    worker.join().expect("an answer");
}
