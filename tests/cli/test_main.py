"""The command's front door."""

from click.testing import CliRunner

from nvshare.cli import COMMANDS, main


def test_help_names_every_command() -> None:
    result = CliRunner().invoke(main, ["--help"])
    assert result.exit_code == 0
    for name, text in COMMANDS.items():
        assert name in result.output
        assert text.split()[0] in result.output


def test_unknown_command_is_named_and_exits_2() -> None:
    result = CliRunner().invoke(main, ["nonsense"])
    assert result.exit_code == 2
    assert "nonsense" in result.output
