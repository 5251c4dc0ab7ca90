//! Mutates manifests: lines, values and numbers of YAML, without knowledge of Kubernetes.

/// The random number generator SplitMix64, which is small and deterministic.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0xD134_2543_DE82_EF95))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, or 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }
}

/// Values that are likely to break arithmetic, recursion or tables.
const VALUES: [&str; 40] = [
    "0",
    "1",
    "-1",
    "2",
    "100000",
    "2147483647",
    "2147483648",
    "-2147483648",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551615",
    "1e308",
    "1e-9",
    "0.0001",
    ".inf",
    ".nan",
    "\"\"",
    "null",
    "true",
    "[]",
    "{}",
    "~",
    "\"1xyz\"",
    "100Ei",
    "9999999Ei",
    "-5",
    "1n",
    "1m",
    "Exists",
    "DoesNotExist",
    "NotIn",
    "Gt",
    "Lt",
    "In",
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "ScheduleAnyway",
    "DoNotSchedule",
];

pub(crate) struct Mutator<'a> {
    seeds: &'a [String],
}

impl<'a> Mutator<'a> {
    pub(crate) fn new(seeds: &'a [String]) -> Self {
        Self { seeds }
    }

    pub(crate) fn mutate(&self, random: &mut Random) -> Vec<u8> {
        let mut text = self.seeds[random.below(self.seeds.len())].clone();
        for _ in 0..=random.below(4) {
            text = self.once(text, random);
        }
        let mut bytes = text.into_bytes();
        // Single bytes are damaged last, because the result may be invalid UTF-8, which the other mutations cannot
        // process.
        match random.below(8) {
            0 => {
                for _ in 0..=random.below(3) {
                    let position = random.below(bytes.len());
                    if let Some(byte) = bytes.get_mut(position) {
                        *byte ^= 1 << random.below(8);
                    }
                }
            }
            1 => bytes.truncate(random.below(bytes.len())),
            _ => {}
        }
        bytes
    }

    fn once(&self, text: String, random: &mut Random) -> String {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        if lines.is_empty() {
            return text;
        }
        let line = random.below(lines.len());
        match random.below(12) {
            0 => lines.insert(line, lines[line].clone()),
            1 => {
                lines.remove(line);
            }
            2 => {
                let other = random.below(lines.len());
                swap_values(&mut lines, line, other);
            }
            3 => lines[line] = nested(&lines[line], random),
            4 => lines[line].insert_str(0, if random.below(2) == 0 { "  " } else { "\t" }),
            5 => {
                let from: Vec<&str> = self.seeds[random.below(self.seeds.len())].split("---\n").collect();
                return format!("{text}---\n{}", random.pick(&from));
            }
            6 => lines[line].push_str(&"x".repeat(random.below(2000))),
            // Values are mutated most often, because most decisions depend on them.
            _ => replace_value(&mut lines, line, random),
        }
        lines.join("\n") + "\n"
    }
}

/// The byte ranges of the values in a line: from `: ` to the next `,`, `}`, `]` or the end.
fn values(line: &str) -> Vec<std::ops::Range<usize>> {
    let mut found = Vec::new();
    for (colon, _) in line.match_indices(": ") {
        let start = colon + 2;
        let rest = &line[start..];
        let skipped = rest.len() - rest.trim_start_matches(['[', '{', '"', ' ']).len();
        let end = rest[skipped..].find([',', '}', ']', '"', ':']).unwrap_or(rest.len() - skipped);
        if end > 0 {
            found.push(start + skipped..start + skipped + end);
        }
    }
    found
}

fn swap_values(lines: &mut [String], one: usize, other: usize) {
    let (of_one, of_other) = (values(&lines[one]), values(&lines[other]));
    if let (Some(left), Some(right), true) = (of_one.last(), of_other.last(), one != other) {
        let (left_text, right_text) =
            (lines[one][left.clone()].to_owned(), lines[other][right.clone()].to_owned());
        lines[one].replace_range(left.clone(), &right_text);
        lines[other].replace_range(right.clone(), &left_text);
    }
}

/// Changes a value of the line or of the next line with a value.
fn replace_value(lines: &mut [String], line: usize, random: &mut Random) {
    for text in &mut lines[line..] {
        let ranges = values(text);
        if !ranges.is_empty() {
            let range = ranges[random.below(ranges.len())].clone();
            text.replace_range(range, random.pick(&VALUES));
            return;
        }
    }
}

/// Nests the line's value deeply in lists or objects.
fn nested(line: &str, random: &mut Random) -> String {
    let depth = [3, 40, 200, 5000][random.below(4)];
    let Some(range) = values(line).pop() else { return line.to_owned() };
    let (open, close) = if random.below(2) == 0 { ("[", "]") } else { ("{a: ", "}") };
    let inner = &line[range.clone()];
    format!(
        "{}{}{inner}{}{}",
        &line[..range.start],
        open.repeat(depth),
        close.repeat(depth),
        &line[range.end..]
    )
}
