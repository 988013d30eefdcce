"""What Alembic runs: the migrations, on the connection and in the transaction of the caller.

`autotune db upgrade`, and opening a new store, call this through `autotune.store`; there is no
alembic.ini.
"""

from alembic import context

from autotune.schema import Base
from autotune.storefile import VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    version_table=VERSION_TABLE,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
