//! Tests that valid archives are parsed, and that errors have the right line numbers. `tests/golden` compares whole
//! archives.

use super::*;

const HEAD: &str = "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"B\"\n\n";

fn bodies(text: &str) -> Result<Vec<String>, MimeError> {
    Archive::read(text).map(|(archive, _)| archive.parts.into_iter().map(|part| part.body).collect())
}

#[test]
fn archive_is_recognized_by_its_first_header() {
    for (text, expected) in [
        ("MIME-Version: 1.0\n", true),
        ("Content-Type: multipart/mixed\n", true),
        ("\n  MIME-Version: 1.0\n", true),
        ("mime-version: 1.0\n", false),
        ("#!/bin/bash\n# MIME-Version: 1.0", false),
        ("", false),
    ] {
        assert_eq!(Archive::is_archive(text), expected, "{text:?}");
    }
}

#[test]
fn bodies_end_at_boundary_lines_only() {
    for (body, expected) in [
        ("--B\n\none\n--B--\n", vec!["one"]),
        ("--B\n\none\n\n--B--\n", vec!["one\n"]),
        ("--B\r\n\r\none\r\n--B--\r\n", vec!["one"]),
        ("note\n--B\n\none\n--B\n\ntwo\n--B--\nafter\n", vec!["one", "two"]),
        ("--B  \n\none\n--B--  ", vec!["one"]),
        ("--B\n\n--Bx\n --B\nx --B\n--B--", vec!["--Bx\n --B\nx --B"]),
        ("--B\n\n\n--B--", vec![""]),
        ("--B\n\n--B--", vec![""]),
        ("--B\n\none\n--B\n", vec!["one"]),
        ("nothing here", vec![]),
        ("--B--\n", vec![]),
    ] {
        let read = bodies(&format!("{HEAD}{body}")).expect(body);
        assert_eq!(read, expected, "{body:?}");
    }
}

#[test]
fn archive_without_parts_gives_a_warning() {
    let (archive, warnings) = Archive::read(&format!("{HEAD}nothing")).expect("readable");
    assert_eq!((archive.parts.len(), warnings), (0, vec![Warning::EmptyArchive]));
}

#[test]
fn invalid_archive_is_an_error_with_line_number() {
    for (text, expected) in [
        ("MIME-Version: 1.0\nno header\n\n".to_owned(), MimeError::HeaderWithoutColon { line: 2 }),
        ("MIME-Version: 1.0\n".to_owned(), MimeError::HeadersWithoutEnd),
        ("MIME-Version: 1.0\n\n--B\n".to_owned(), MimeError::NoContentType),
        (
            "Content-Type: text/plain\n\nx".to_owned(),
            MimeError::NotMultipart { found: "text/plain".to_owned() },
        ),
        ("Content-Type: multipart/mixed\n\nx".to_owned(), MimeError::NoBoundary),
        ("Content-Type: multipart/mixed; boundary=\"\"\n\nx".to_owned(), MimeError::NoBoundary),
        ("Content-Type: multipart/mixed; boundary=\"B\n\nx".to_owned(), MimeError::NoBoundary),
        (format!("{HEAD}--B\n\none\n"), MimeError::PartWithoutEnd { line: 5 }),
        (format!("{HEAD}--B\nContent-Type: text/plain\n"), MimeError::HeadersWithoutEnd),
        (
            format!("{HEAD}--B\nContent-Transfer-Encoding: quoted-printable\n\nok\na=ZZ\n--B--"),
            MimeError::QuotedPrintable { line: 8 },
        ),
    ] {
        assert_eq!(bodies(&text), Err(expected), "{text:?}");
    }
}

#[test]
fn boundary_is_found_among_other_parameters() {
    for header in [
        "multipart/mixed; boundary=B",
        "Multipart/Mixed; charset=\"us;ascii\"; BOUNDARY=\"B\"",
        "multipart/mixed;boundary=B;x=y",
        "multipart/mixed; x=y; boundary=\"\\B\"",
        "multipart/mixed;\n  boundary=\"B\"",
    ] {
        let text = format!("Content-Type: {header}\n\n--B\n\none\n--B--\n");
        assert_eq!(bodies(&text), Ok(vec!["one".to_owned()]), "{header}");
    }
}

#[test]
fn quoted_printable_is_decoded_and_its_header_removed() {
    let text =
        format!("{HEAD}--B\nContent-Transfer-Encoding: Quoted-Printable\n\na=3Db =\nc  \n=C3=A4\n--B--");
    let (archive, _) = Archive::read(&text).expect("readable");
    assert_eq!(archive.parts, [Part { headers: Headers::new(), body: "a=b c\nä".to_owned() }]);
}

#[test]
fn base64_header_is_kept_when_other_headers_are_dropped() {
    let text = format!(
        "{HEAD}--B\ncontent-type: text/x-shellscript\ncontent-transfer-encoding: base64\nX-Other: 1\n\nZWNobw==\n--B--"
    );
    let (archive, _) = Archive::read(&text).expect("readable");
    let headers = &archive.with_content_headers_only().parts[0].headers;
    assert_eq!(headers.keys().collect::<Vec<_>>(), ["Content-Transfer-Encoding", "Content-Type"]);
}

#[test]
fn part_that_contains_our_boundary_stays_intact() {
    let inner = Archive::of(Part::new("text/plain", "inner")).write();
    let outer = Archive::of(Part::new("multipart/mixed; boundary=\"//\"", inner.clone())).write();
    assert!(
        outer.starts_with("MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"//=\"\n"),
        "{outer}"
    );
    assert_eq!(bodies(&outer), Ok(vec![inner]));
}
