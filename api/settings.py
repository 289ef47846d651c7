"""Settings of the service and the command line: environment first, then a file, then the defaults."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import platformdirs
from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

from tuner.errors import FieldProblem, InvalidInput

_APP = "paretune"


def default_database_url() -> str:
    """An SQLite file in the user's data folder."""
    return f"sqlite:///{Path(platformdirs.user_data_dir(_APP)) / 'paretune.db'}"


def settings_file() -> Path:
    """The file that settings are read from: ``PARETUNE_CONFIG``, else ``paretune.toml`` in the user's config folder."""
    return Path(os.environ.get("PARETUNE_CONFIG") or Path(platformdirs.user_config_dir(_APP)) / "paretune.toml")


class Settings(BaseSettings):
    """Every setting; each is ``PARETUNE_`` and its name in the environment, or its name in the settings file."""

    model_config = SettingsConfigDict(env_prefix="PARETUNE_", extra="forbid", frozen=True)

    database_url: str = Field(
        default_factory=default_database_url,
        description="SQLAlchemy URL of the database: sqlite:///PATH or postgresql://USER@HOST/NAME.",
    )
    ray_address: str | None = Field(
        default=None, description="Address of a running Ray cluster; a local one is started where it is not given."
    )
    local_gpus: int | None = Field(
        default=None,
        ge=1,
        le=100_000,
        description="Logical GPUs of the local Ray; `tune` takes what its study needs, `dispatch` and `serve` 64.",
    )
    host: str = Field(default="127.0.0.1", description="Address that `serve` listens on.")
    port: int = Field(default=8787, ge=0, le=65535, description="Port that `serve` listens on; 0 picks a free one.")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments, then the environment, then the file."""
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, settings_file())


def load_settings(**given: Any) -> Settings:
    """Read the settings.

    Args:
        given: Settings given on the command line, which win over the environment and the file.

    Raises:
        InvalidInput: A setting that cannot be, named as it stands in the environment.
    """
    try:
        return Settings(**given)
    except ValidationError as error:
        raise InvalidInput(
            *(
                FieldProblem(
                    f"PARETUNE_{'_'.join(map(str, detail['loc'])).upper()}",
                    detail["input"],
                    detail["msg"].replace("Input should", "must"),
                )
                for detail in error.errors(include_url=False)
            )
        ) from None
    except ValueError as error:
        raise InvalidInput.of(
            "PARETUNE_CONFIG", str(settings_file()), f"must be a readable TOML file: {error}"
        ) from None
