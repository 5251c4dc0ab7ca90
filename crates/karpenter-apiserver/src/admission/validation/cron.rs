//! Validation of cron schedules: five fields, or a descriptor such as `@daily`.
//!
//! Upstream: github.com/robfig/cron/v3/parser.go

/// The error message of the Go library that kube-apiserver uses; `None` if the schedule is valid.
pub(super) fn schedule_problem(schedule: &str) -> Option<String> {
    check(schedule).err()
}

struct Bounds {
    least: u32,
    most: u32,
    names: &'static [&'static str],
}

const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
const FIELDS: [Bounds; 5] = [
    Bounds { least: 0, most: 59, names: &[] },
    Bounds { least: 0, most: 23, names: &[] },
    Bounds { least: 1, most: 31, names: &[] },
    Bounds { least: 1, most: 12, names: &MONTHS },
    Bounds { least: 0, most: 6, names: &DAYS },
];

fn check(schedule: &str) -> Result<(), String> {
    if schedule.is_empty() {
        return Err("empty spec string".into());
    }
    let mut rest = schedule;
    if rest.starts_with("TZ=") || rest.starts_with("CRON_TZ=") {
        rest = rest.split_once(' ').map_or("", |(_, rest)| rest.trim());
    }
    if rest.starts_with('@') {
        let is_known = matches!(
            rest,
            "@yearly" | "@annually" | "@monthly" | "@weekly" | "@daily" | "@midnight" | "@hourly"
        );
        return match rest.strip_prefix("@every ") {
            Some(duration) if is_duration(duration) => Ok(()),
            Some(duration) => {
                Err(format!("failed to parse duration {rest}: time: invalid duration \"{duration}\""))
            }
            None if is_known => Ok(()),
            None => Err(format!("unrecognized descriptor: {rest}")),
        };
    }
    let fields: Vec<&str> = rest.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        let found = fields.len();
        return Err(format!("expected exactly 5 fields, found {found}: [{}]", fields.join(" ")));
    }
    for (field, bounds) in fields.iter().zip(&FIELDS) {
        for part in field.split(',').filter(|part| !part.is_empty()) {
            check_range(part, bounds)?;
        }
    }
    Ok(())
}

/// `5m`, `1h30m`, `1.5h`.
fn is_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    if rest.is_empty() {
        return false;
    }
    while !rest.is_empty() {
        let number = rest.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
        let unit = rest[number..].bytes().take_while(u8::is_ascii_alphabetic).count();
        if number == 0 || !matches!(&rest[number..number + unit], "ns" | "us" | "ms" | "s" | "m" | "h") {
            return false;
        }
        rest = &rest[number + unit..];
    }
    true
}

fn check_range(expression: &str, bounds: &Bounds) -> Result<(), String> {
    let range_and_step: Vec<&str> = expression.split('/').collect();
    let low_and_high: Vec<&str> = range_and_step[0].split('-').collect();
    let is_single = low_and_high.len() == 1;
    let (start, mut end) = if matches!(low_and_high[0], "*" | "?") {
        (bounds.least, bounds.most)
    } else {
        let start = read(low_and_high[0], bounds.names)?;
        match low_and_high.len() {
            1 => (start, start),
            2 => (start, read(low_and_high[1], bounds.names)?),
            _ => return Err(format!("too many hyphens: {expression}")),
        }
    };
    let step = match range_and_step.len() {
        1 => 1,
        2 => {
            let step = read(range_and_step[1], &[])?;
            if is_single {
                end = bounds.most;
            }
            step
        }
        _ => return Err(format!("too many slashes: {expression}")),
    };
    let (least, most) = (bounds.least, bounds.most);
    if start < least {
        return Err(format!("beginning of range ({start}) below minimum ({least}): {expression}"));
    }
    if end > most {
        return Err(format!("end of range ({end}) above maximum ({most}): {expression}"));
    }
    if start > end {
        return Err(format!("beginning of range ({start}) beyond end of range ({end}): {expression}"));
    }
    if step == 0 {
        return Err(format!("step of range should be a positive number: {expression}"));
    }
    Ok(())
}

fn read(text: &str, names: &[&str]) -> Result<u32, String> {
    if let Some(position) = names.iter().position(|name| name.eq_ignore_ascii_case(text)) {
        // Numbers of months start at 1, those of days of the week at 0.
        return Ok(position as u32 + u32::from(names.len() == MONTHS.len()));
    }
    match text.parse::<i64>() {
        Ok(number) if number < 0 => Err(format!("negative number ({number}) not allowed: {text}")),
        Ok(number) => u32::try_from(number).map_err(|_| format!("number ({number}) is too large: {text}")),
        Err(_) => {
            Err(format!("failed to parse int from {text}: strconv.Atoi: parsing \"{text}\": invalid syntax"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::schedule_problem;

    #[test]
    fn schedules() {
        let table = [
            ("* * * * *", None),
            ("*/5 0-6 1,15 JAN-jun mon", None),
            ("@hourly", None),
            ("@every 1h30m", None),
            ("@never", Some("unrecognized descriptor: @never")),
            ("* * * *", Some("expected exactly 5 fields, found 4: [* * * *]")),
            ("60 * * * *", Some("end of range (60) above maximum (59): 60")),
            ("* * 0 * *", Some("beginning of range (0) below minimum (1): 0")),
            ("x * * * *", Some("failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax")),
            ("5-1 * * * *", Some("beginning of range (5) beyond end of range (1): 5-1")),
            ("*/0 * * * *", Some("step of range should be a positive number: */0")),
        ];
        for (schedule, expected) in table {
            assert_eq!(schedule_problem(schedule).as_deref(), expected, "{schedule}");
        }
    }
}
