from coursekit.commands.cli import main

main()
