"""First tables

Revision: 0001
Follows: nothing
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "event",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("study_id", sa.String(length=40), nullable=False),
        sa.Column("study_name", sa.String(length=100), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(length=40), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("payload", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_event")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_event_study_id_id"), "event", ["study_id", "id"])

    op.create_table(
        "study",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("project", sa.String(length=100), nullable=False),
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("spec_digest", sa.String(length=64), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("state_reason", sa.Text(), nullable=True),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("job_fingerprint", sa.String(length=64), nullable=False),
        sa.Column("hardware_fingerprint", sa.String(length=64), nullable=False),
        sa.Column("reference_step_time_s", sa.Double(), nullable=True),
        sa.Column("reference_energy_j", sa.Double(), nullable=True),
        sa.Column("active_s", sa.Double(), nullable=False),
        sa.Column("lease_owner", sa.String(length=200), nullable=True),
        sa.Column("lease_token", sa.Integer(), nullable=False),
        sa.Column("lease_expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "state IN ('queued', 'running', 'paused', 'stopping', 'cancelling', 'completed', 'stopped', "
            "'cancelled', 'failed')",
            name=op.f("ck_study_state"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_study")),
        sa.UniqueConstraint("project", "name", name=op.f("uq_study_project_name")),
    )
    op.create_index(op.f("ix_study_created_at_id"), "study", ["created_at", "id"])
    op.create_index(
        op.f("ix_study_job_fingerprint_hardware_fingerprint"),
        "study",
        ["job_fingerprint", "hardware_fingerprint"],
        unique=False,
    )
    op.create_index(op.f("ix_study_state"), "study", ["state"])

    op.create_table(
        "trial",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("study_id", sa.String(length=40), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("configuration_key", sa.String(length=120), nullable=False),
        sa.Column("repeat", sa.Integer(), nullable=False),
        sa.Column("dp", sa.Integer(), nullable=False),
        sa.Column("tp", sa.Integer(), nullable=False),
        sa.Column("pp", sa.Integer(), nullable=False),
        sa.Column("microbatch", sa.Integer(), nullable=False),
        sa.Column("frequency_mhz", sa.Integer(), nullable=True),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("failure_kind", sa.String(length=40), nullable=True),
        sa.Column("message", sa.Text(), nullable=True),
        sa.Column("origin", sa.String(length=20), nullable=False),
        sa.Column("sampler_attrs", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "state IN ('queued', 'running', 'complete', 'infeasible', 'failed', 'stopped', 'lost')",
            name=op.f("ck_trial_state"),
        ),
        sa.ForeignKeyConstraint(["study_id"], ["study.id"], name=op.f("fk_trial_study_id_study"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_trial")),
        sa.UniqueConstraint(
            "study_id", "configuration_key", "repeat", name=op.f("uq_trial_study_id_configuration_key_repeat")
        ),
        sa.UniqueConstraint("study_id", "number", name=op.f("uq_trial_study_id_number")),
    )
    op.create_table(
        "attempt",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("trial_id", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("lease_token", sa.Integer(), nullable=False),
        sa.Column("launch_name", sa.String(length=200), nullable=False),
        sa.Column("new_launch", sa.Boolean(), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("failure_kind", sa.String(length=40), nullable=True),
        sa.Column("message", sa.Text(), nullable=True),
        sa.Column("log_tail", sa.Text(), nullable=True),
        sa.Column("launch_s", sa.Double(), nullable=True),
        sa.Column("gpu_seconds", sa.Double(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "state IN ('running', 'complete', 'infeasible', 'failed', 'stopped', 'lost')", name=op.f("ck_attempt_state")
        ),
        sa.ForeignKeyConstraint(["trial_id"], ["trial.id"], name=op.f("fk_attempt_trial_id_trial"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_attempt")),
        sa.UniqueConstraint("trial_id", "number", name=op.f("uq_attempt_trial_id_number")),
    )
    op.create_table(
        "measurement",
        sa.Column("attempt_id", sa.Integer(), nullable=False),
        sa.Column("source", sa.String(length=20), nullable=False),
        sa.Column("step_time_s", sa.Double(), nullable=False),
        sa.Column("step_time_sem_s", sa.Double(), nullable=False),
        sa.Column("energy_j", sa.Double(), nullable=True),
        sa.Column("energy_sem_j", sa.Double(), nullable=True),
        sa.Column("energy_source", sa.String(length=20), nullable=True),
        sa.Column("tokens_per_s", sa.Double(), nullable=False),
        sa.Column("peak_memory_gib", sa.Double(), nullable=True),
        sa.Column("average_power_w", sa.Double(), nullable=True),
        sa.Column("steps", sa.Integer(), nullable=False),
        sa.Column("window_s", sa.Double(), nullable=False),
        sa.Column("duration_s", sa.Double(), nullable=False),
        sa.Column("requested_mhz", sa.Integer(), nullable=True),
        sa.Column("achieved_mhz", sa.Integer(), nullable=True),
        sa.Column("temperature_c", sa.Double(), nullable=True),
        sa.Column("power_cap_share", sa.Double(), nullable=True),
        sa.Column("thermal_share", sa.Double(), nullable=True),
        sa.Column("flags", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["attempt_id"], ["attempt.id"], name=op.f("fk_measurement_attempt_id_attempt"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("attempt_id", name=op.f("pk_measurement")),
    )


def downgrade() -> None:
    op.drop_table("measurement")
    op.drop_table("attempt")
    op.drop_table("trial")
    op.drop_index(op.f("ix_study_state"), "study")
    op.drop_index(op.f("ix_study_job_fingerprint_hardware_fingerprint"), "study")
    op.drop_index(op.f("ix_study_created_at_id"), "study")

    op.drop_table("study")
    op.drop_index(op.f("ix_event_study_id_id"), "event")

    op.drop_table("event")
